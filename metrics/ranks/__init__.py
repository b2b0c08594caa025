"""Several ranks of one job, aligned by their collectives.

`collectives` comes first, then `alignment`, `waiting` and `comparison`; `causes` finds why a rank is late.
"""
