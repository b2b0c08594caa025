"""Jobs that no one has seen: drawn anew from every commit, so that nothing can be tuned to them (`make sealed`)."""
