"""The agent of a node: takes packets from the jobs on it, and sends the daemon batches it can rely on.

`server` is its socket, `member` a process over all its connections, `process_decoder` makes tables of its packets, in
order and on the Unix clock (`clocks`, `reordering`, `conversion`), `rank_spool` numbers them and cuts batches, `uplink`
sends a spool; `node_agent` runs all of them and `pacing` decides how much is collected. Without a GPU `operators` and
`threads` turn operators into kernels. `rank_places`, `injection`, `launching`, `running`, `draining` and `summary` are
`deepprof run`; `reports` and `traces` collect report files.
"""
