"""The daemon that watches training jobs: it needs records and returns iterations, metrics and findings.

`daemon` opens and closes it; `engine` contains ranks, journal and history together; `ingest`, `query` and `admin`
answer calls. Two threads do the work: `writer` makes records durable, `worker` mines; a `daemon_rank` passes through
both, and `account` counts its records. `supervision` ends the process when one of its parts fails. `admission`,
`fair_queue` and `fair_lock` decide whose turn it is. `recovery` opens a store after a crash, `fsck` repairs a damaged
one."""
