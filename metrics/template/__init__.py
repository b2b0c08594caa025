"""Inside one iteration: nested loops, the iteration that represents all, the operators around a launch.

`blocks` finds where nested loops ran, `median_iteration` has the iteration that represents all and the operators around
its launches.
"""
