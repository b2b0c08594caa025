"""What an iteration is made of: stages, layers and sections, as people know them (Hotline).

`stage_names` has what names show, `filling` decides what is between; `event_stages` puts the stages of contexts and
kernels on device events. `layers` finds the model's layers. `device_segments` and `host_stages` (with `host_segments`)
cut the time of an iteration, `anatomy` adds it up and has the statistics of one loop (`anatomy_tables`).
`iteration_boxes` makes boxes (`boxes`) within boxes of an iteration, `titles` names them, `sections` groups them,
`typical` does so for the iteration that represents all. `trace_annotation` contains the data on one trace.
"""
