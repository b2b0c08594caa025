"""Kineto on demand: PyTorch's own profiler in unmodified jobs, asked for a short complete window now and then.

`messages` reads the processes' datagrams, `schedule` decides when a window is due, `processes` keeps the processes that
ask, `window_folder` has the files they write, `kineto_source` combines these.
"""
