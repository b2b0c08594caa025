"""Where the time goes: the parts of a device's and an iteration's time, and what they cost.

`gaps` asks the end of each gap whether the host was late, `host_states` what the host did meanwhile, `timeline` lays
both over the span; `parts_table` has the parts of each iteration, `costs` what a part costs, `program_places` where in
the program it happens.
"""
