"""What became of a command's records, from the agent's words, as one line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from deepprof.agent.answers import Answer, Process

__all__ = ["Account", "add_up", "describe", "select"]

SHOWN = 3  # refusals and notices in one line


@dataclass(frozen=True, slots=True)
class Account:
    """The numbers of a command's processes on this node; `settled`: nothing is to come, nothing waits."""

    ranks: int
    records: int
    waiting: int
    lost: int
    settled: bool


def select(answer: Answer, job: str, before: Collection[str]) -> list[Process]:
    """Return the job's processes but those of `before`, the sessions that were known when the command began."""
    return [each for each in answer.processes if each.job == job and each.session not in before]


def add_up(processes: Iterable[Process], is_alive: Callable[[int], bool]) -> Account:
    """Return the numbers of `processes`.

    The command has ended, so that one that `is_alive` is another run's of the same job: it is not waited for. Of a
    rank that several processes carried, one after the other, what waits is told by each and counted once.
    """
    ours = list(processes)
    told = [each for each in ours if each.records]
    waiting: dict[int | None, int] = {}
    for each in told:
        waiting[each.rank] = max(waiting.get(each.rank, 0), each.waiting)
    ended = all(each.ended or is_alive(each.pid) for each in ours)
    settled = ended and all(not each.waiting for each in told if each.ended)
    return Account(
        ranks=len(waiting),
        records=sum(each.records for each in told),
        waiting=sum(waiting.values()),
        lost=sum(each.lost for each in told),
        settled=settled,
    )


def describe(answer: Answer, job: str, processes: list[Process], account: Account, to: str | None = None) -> str:
    """Return the line that a run ends with; `to` is the daemon's address where the user gave one."""
    if not account.records:
        return f"job {job}: nothing was collected: {explain_nothing(answer, processes)}"
    ranks = f"{account.ranks} rank{'s' if account.ranks != 1 else ''}"
    acknowledged = max(0, account.records - account.waiting)
    parts = [f"{ranks}, {acknowledged:,} records acknowledged by {answer.to or 'the daemon'}"]
    if account.waiting:
        why = answer.trouble or ("they are on their way" if answer.connected else "the daemon is away")
        parts.append(f"{account.waiting:,} wait on disk ({why})")
    parts.append(f"{account.lost:,} lost")
    return f"job {job}: {', '.join(parts)}; deepprof watch {f'{to} ' if to else ''}--job {job}"


def explain_nothing(answer: Answer, processes: list[Process]) -> str:
    """Return why no record came, as far as anybody says it."""
    notices = [notice.text for each in processes for notice in each.notices if notice.text]
    refused = [each.why for each in answer.refused if each.why]
    said = list(dict.fromkeys(notices or refused))[:SHOWN]
    if said:
        return "; ".join(said)
    if processes:
        return "its processes ran no GPU kernel and no PyTorch operator"
    return "no process of it ran a GPU kernel or a PyTorch operator; deepprof doctor says what this machine lacks"
