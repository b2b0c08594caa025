"""Several ranks of one job, laid on each other by their collectives."""
