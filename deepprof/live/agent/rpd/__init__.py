"""RPD files read while librpd_tracer writes them.

`growth` reads the rows that are new, `held` keeps them until all that began before them has come, `source` sends them.
"""
