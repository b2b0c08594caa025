"""Inside one iteration: nested loops, the iteration that stands for all, the operators around a launch."""
