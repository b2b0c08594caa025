"""An analysis as text, JSON or a file for another tool (layer 3).

Apart from `deepprof.commands` no other package uses rich, and none uses the structs of the report. `perfetto` and
`lanes` write Chrome traces a piece at a time; `speedscope` and `tabular` are the other formats.
"""
