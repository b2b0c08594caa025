"""RPD files read while librpd_tracer writes them.

`growing_database` reads the rows that are new, `held_rows` keeps them until all rows that began before have come,
`rpd_source` sends them.
"""
