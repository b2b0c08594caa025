"""Inside one iteration: nested loops, the iteration that stands for all, the operators around a launch.

`blocks` says where nested loops ran, `median_iteration` has the iteration that stands for all, `enclosure` and
`launch_operators` find the operators around a launch.
"""
