"""What the daemon holds to while it is killed, its disk fails and clients are: `python -m benchmarks.chaos`."""
