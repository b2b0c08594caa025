"""The other end of the daemon: sending records, asking questions."""
