"""Speed and accuracy, printed as tables: `python -m benchmarks`, `python -m benchmarks.accuracy`."""
