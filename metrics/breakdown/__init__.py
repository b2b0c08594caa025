"""Where the time goes: the parts of a device's and an iteration's time, and what they cost.

`gaps` decides from the event that ends each gap whether the host was late, `host_states` has what the host did
meanwhile, `timeline` combines both over the device's span; `parts_table` has the parts of every iteration, `costs` what
a part costs, `program_places` where in the program it happens.
"""
