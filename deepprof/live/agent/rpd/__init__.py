"""RPD files read while librpd_tracer writes them.

`growing_database` reads the rows that are new, `held_rows` keeps them until all that began before them has come,
`rpd_source` sends them.
"""
