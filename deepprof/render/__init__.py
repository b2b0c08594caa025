"""An analysis as text, JSON or a file for another tool (floor 3).

Nothing else knows rich or the structs of the report. `perfetto` and `lanes` write Chrome traces a piece at a time;
`speedscope` and `tabular` are the other formats.
"""
