"""The rules that several keys must meet together."""

from __future__ import annotations

from collections.abc import Callable

from deepprof.collectors.errors import UsageError
from deepprof.live.service.config.quantities import format_nbytes
from deepprof.live.service.config.sections import Config

__all__ = ["check_config"]

MOST_ADDRESSES = 8
SEGMENTS = 4  # the least number of a journal: one is written, one is read, and the oldest may be removed


def check_config(config: Config) -> None:
    """Raise `UsageError` where keys contradict each other."""
    for rule, problem in RULES:
        if rule(config):
            raise UsageError(problem(config))


def journal_is_short(config: Config) -> bool:
    """Return whether the journal holds too few segments to remove the oldest."""
    return config.journal.total_nbytes < SEGMENTS * config.journal.segment_nbytes


def say_journal(config: Config) -> str:
    """Return the problem of a short journal."""
    least = format_nbytes(SEGMENTS * config.journal.segment_nbytes)
    return f"journal.total_nbytes: must be at least {least}, {SEGMENTS} segments; raise it or lower segment_nbytes"


RULES: tuple[tuple[Callable[[Config], bool], Callable[[Config], str]], ...] = (
    (
        lambda config: len(config.listen.addresses) > MOST_ADDRESSES,
        lambda config: f"listen.addresses: {len(config.listen.addresses)} are too many; {MOST_ADDRESSES} are allowed",
    ),
    (
        lambda config: bool(config.tls.cert) != bool(config.tls.key),
        lambda config: "tls: cert and key belong together; give both or neither",
    ),
    (
        lambda config: bool(config.tls.client_ca) and not config.tls.cert,
        lambda config: "tls.client_ca: clients' certificates need TLS; give tls.cert and tls.key too",
    ),
    (
        lambda config: bool(config.tls.subjects) and not config.tls.client_ca,
        lambda config: "tls.subjects: names come from clients' certificates; give tls.client_ca too",
    ),
    (
        lambda config: config.limits.name_nbytes > config.limits.names_nbytes,
        lambda config: "limits.name_nbytes: one name cannot be larger than names_nbytes, all names together",
    ),
    (
        lambda config: config.journal.segment_nbytes <= config.limits.message_nbytes,
        lambda config: "journal.segment_nbytes: must be larger than limits.message_nbytes; a message is never cut",
    ),
    (
        lambda config: config.limits.queue_nbytes < config.limits.message_nbytes,
        lambda config: "limits.queue_nbytes: must be at least limits.message_nbytes",
    ),
    (
        lambda config: config.limits.queue_nbytes < config.limits.rank_queue_nbytes,
        lambda config: "limits.rank_queue_nbytes: one rank cannot have more than queue_nbytes, all ranks together",
    ),
    (journal_is_short, say_journal),
)
