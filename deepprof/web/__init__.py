"""The page: what people examine, from a file, from a server on this machine, or from the daemon.

`documents/` has what a view shows, a module a view: columns and tables of texts, typed, written from an `Analysis`.
`state_graph.py` draws one of them as its own picture. `web/` next to the packages has the sources of the page
itself, which shows documents and computes nothing.
"""
