"""Kineto on demand: PyTorch's own profiler in unmodified jobs, asked for a short complete window now and then.

`messages` reads what processes say, `schedule` says when a window is due, `processes` knows who asks, `window_folder`
has the files they write, `kineto_source` puts it together.
"""
