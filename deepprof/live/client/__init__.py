"""The client side of the daemon: sending records and querying.

`endpoint` and `credentials` describe how to reach a daemon; `sender` sends and resumes, `replay` sends recordings,
`daemon` sends queries.
"""
