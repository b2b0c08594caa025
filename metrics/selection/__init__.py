"""Which records of a trace belong to a part of it: named ranges, some kernels, some iterations, a layer.

PASTA calls these ranges. Each module returns marks of rows by `RECORD_TABLES`; marks combine, and
`collectors.kept_rows` makes the part of a trace.
"""
