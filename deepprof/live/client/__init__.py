"""The other end of the daemon: sending records, asking questions.

`endpoint` and `credentials` are the way to a daemon; `sender` sends and resumes, `replay` sends recordings, `daemon`
asks questions.
"""
