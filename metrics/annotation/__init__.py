"""What an iteration is made of: stages, the model's layers, and sections, as people know them (Hotline).

`stage_names` has what names tell, `context_stages` what calling contexts are part of, `kernel_families` what kernels
alone tell, `filling` decides what lies between; `event_stages` puts that on device events. `host_segments` cuts the
threads of the host, `stage_times` adds up what each stage took of each iteration, `layers` does so for the model's
layers; `anatomy` has all of one loop.
"""
