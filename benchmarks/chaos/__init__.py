"""What the daemon holds to while it is killed, its disk fails and clients lie: `python -m benchmarks.chaos`."""
