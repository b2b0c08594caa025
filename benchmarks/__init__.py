"""Speed, accuracy and what holds in chaos: `python -m benchmarks`, `benchmarks.accuracy`, `benchmarks.chaos`."""
