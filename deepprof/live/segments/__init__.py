"""Logs on disk, in segment files of frames: the agent's spool and the daemon's journal are two.

`frame_format` checks and makes frames, `segment_files` reads and appends them. When to sync, what to remove and what to
do about a damaged frame is decided by the log.
"""
