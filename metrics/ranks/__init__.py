"""Several ranks of one job, laid on each other by their collectives.

`collectives`, then `alignment`, `waiting` and `comparison`; `causes` says why a rank is late.
"""
