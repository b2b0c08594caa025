"""What became of a command's records, from the agent's words, as one line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from deepprof.agent.answers import CUT, Answer, Process

__all__ = ["AWAY", "Account", "Finished", "add_up", "describe", "select"]

SHOWN = 3  # refusals and notices in one line
# What `client.errors` says of a daemon that is not there; all else it said itself, or the way to it did.
AWAY = {"there is no such socket", "nothing listens there", "is about to stop", "broke the connection off"}


@dataclass(frozen=True, slots=True)
class Account:
    """The numbers of a command's processes on this node; `settled`: nothing is to come, nothing waits.

    `records` are those that were kept, `waiting` those of them that the daemon may not have yet: while a gap waits, it
    counts as records that do. `cut` are processes that were gone before they had said their end: what they had not
    sent is counted nowhere.
    """

    ranks: int
    records: int
    waiting: int
    lost: int
    cut: int
    settled: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended.

    `to` is the daemon's address where the user gave one, `since_unix_ns` when the agent began that the run found: a
    later one knows nothing of what came before it. `going` are processes of the command that have outlived it.
    """

    job: str
    to: str | None = None
    since_unix_ns: int | None = None
    going: Collection[int] = ()


def select(answer: Answer, job: str, before: Collection[str]) -> list[Process]:
    """Return the job's processes but those of `before`, the sessions that were known when the command began."""
    return [each for each in answer.processes if each.job == job and each.session not in before]


def add_up(processes: Iterable[Process], is_alive: Callable[[int], bool]) -> Account:
    """Return the numbers of `processes`.

    The command has ended, so that one that `is_alive` is another run's of the same job: it is not waited for. Of
    several processes that were one rank, one after the other, each has a spool of its own. One that was refused has
    records and no rank: they went nowhere.
    """
    ours = list(processes)
    told = [each for each in ours if each.records and each.rank is not None]
    ended = all(each.ended or is_alive(each.pid) for each in ours)
    settled = ended and all(not each.waiting for each in told if each.ended)
    return Account(
        ranks=len({each.rank for each in told}),
        records=sum(each.kept for each in told),
        waiting=sum(min(each.waiting, each.kept) for each in told),
        lost=sum(each.lost for each in told),
        cut=sum(any(notice.code == CUT for notice in each.notices) for each in told),
        settled=settled,
    )


def describe(answer: Answer, run: Finished, processes: list[Process], account: Account) -> str:
    """Return the line that a run ends with."""
    is_another = run.since_unix_ns is not None and answer.began_unix_ns > run.since_unix_ns
    if account.ranks:
        said = list_numbers(answer, account, is_another=is_another)
    elif is_another and not processes:
        said = "the agent ended on the way; what it had taken is on disk, and is sent by the one started again"
    elif run.going:
        said = "nothing was collected so far"
    else:
        said = f"nothing was collected: {explain_nothing(answer, processes)}"
    rest = [f"refused: {why}" for why in list_refusals(answer, processes)] if account.ranks else []
    rest += [f"its process {min(run.going)} runs on"] if run.going else []
    if account.waiting and not answer.connected and answer.trouble in AWAY:
        how = " (deepprof serve)" if answer.to.startswith("unix:") else ""  # another machine's is not ours to start
        rest.append(f"they are sent once the daemon runs{how}")
    elif account.ranks or rest:
        rest.append(f"deepprof watch {f'{run.to} ' if run.to else ''}--job {run.job}")
    return "; ".join([f"job {run.job}: {said}", *rest])


def list_numbers(answer: Answer, account: Account, *, is_another: bool) -> str:
    """Return what came, `is_another`: of an agent that was started on the way."""
    ranks = f"{account.ranks} rank{'s' if account.ranks != 1 else ''}"
    acknowledged = max(0, account.records - account.waiting)
    parts = [f"{ranks}, {acknowledged:,} records acknowledged by {answer.to or 'the daemon'}"]
    parts += ["since the agent was started again"] if is_another else []
    if account.waiting:
        why = answer.trouble or ("they are on their way" if answer.connected else "the daemon is away")
        parts.append(f"{account.waiting:,} wait on disk ({why})")
    return ", ".join([*parts, f"{account.lost:,} lost{describe_cut(account.cut)}"])


def describe_cut(count: int) -> str:
    """Return what the number of lost records leaves out, of `count` processes whose end was not heard."""
    if not count:
        return ""
    who = "1 process that never said its end" if count == 1 else f"{count:,} processes that never said their end"
    return f" but what {who} had not sent"


def list_refusals(answer: Answer, processes: list[Process]) -> list[str]:
    """Return why processes were refused, but those that are not ours."""
    ours = {each.pid for each in processes}
    others = {each.pid for each in answer.processes} - ours
    return list(dict.fromkeys(each.why for each in answer.refused if each.why and each.pid not in others))[:SHOWN]


def explain_nothing(answer: Answer, processes: list[Process]) -> str:
    """Return why no record came, as far as anybody says it."""
    notices = [notice.text for each in processes for notice in each.notices if notice.text]
    said = list(dict.fromkeys([*list_refusals(answer, processes), *notices]))[:SHOWN]
    if said:
        return "; ".join(said)
    if processes:
        return "its processes ran no GPU kernel and no PyTorch operator"
    where = f" where it sees {answer.socket} and has DeepProf's library in it" if answer.socket else ""
    return f"no process ran a GPU kernel or a PyTorch operator{where}; deepprof doctor says what this machine lacks"
