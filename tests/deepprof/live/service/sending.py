"""What tests send to a daemon, and what they ask of it afterwards."""

from __future__ import annotations

import polars as pl

import deepprof
from deepprof.live.client.connection import connect
from deepprof.live.client.daemon import Daemon as Client
from deepprof.live.service.views import HISTORY
from tests.deepprof.live.service.daemons import Daemon, wait_for
from tests.patience import PATIENCE_S

__all__ = ["check_accounts", "iterations_of", "open_client", "wait_settled"]


def open_client(daemon: Daemon) -> Client:
    """Return a client of the daemon, which waits for an answer as long as tests wait."""
    return connect(daemon.address, timeout_s=PATIENCE_S)


def wait_settled(client: Client, job: str) -> None:
    """Wait until all ranks of a job have ended and were analysed as a whole."""
    wait_for(lambda: all(rank.settled for rank in client.ranks(job)), f"{job} is settled")


def check_accounts(client: Client) -> None:
    """Assert that every record that any rank has sent is in exactly one count."""
    for job in client.jobs():
        for rank in client.ranks(job.job):
            account = rank.account
            fates = account.accepted + account.invalid + account.duplicate + sum(account.dropped.values())
            assert account.received == fates, (job.job, rank.rank, account)


def iterations_of(traces: deepprof.Trace | deepprof.Analysis) -> pl.DataFrame:
    """Return the iterations that the offline analysis finds, with the columns of the daemon's."""
    found = (traces if isinstance(traces, deepprof.Analysis) else deepprof.analyze(traces)).iterations
    return found.select("rank", *HISTORY.names()).cast({"rank": pl.Int64, **HISTORY})
