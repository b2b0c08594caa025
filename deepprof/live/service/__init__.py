"""The daemon that watches training jobs: records in, iterations, metrics and findings out.

`daemon` opens and closes it; `engine` holds ranks, journal and history together; `ingest`, `query` and `admin` answer
calls. Two threads: `writer` makes records durable, `worker` mines; a `daemon_rank` passes through both, and `account`
counts it. `supervision` ends the process where one of its parts fails. `admission`, `fair_queue` and `fair_lock` say
whose turn it is. `recovery` opens a store after a crash, `fsck` repairs a damaged one.
"""
