"""What became of a command's records, from the agent's answer, as one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from deepprof.live.agent.answers import CUT, AgentStatus, ProcessStatus
from deepprof.plurals import counted
from deepprof.render.plain import printable, shorten

SHOWN = 3  # refusals and notices in one line
SAID_CHARS = 120  # of the daemon's text on records that it refused
REFUSED = "refused"  # the reason of missing records that the daemon did not take
# The texts of `client.errors` for a daemon that is not there; others come from the daemon or the way to it.
AWAY = {"there is no such socket", "nothing listens there", "is about to stop", "broke the connection off"}


@dataclass(frozen=True, slots=True)
class RunAccount:
    """The records of a command's processes on this node; `settled`: none are to come, and none wait.

    Of those `made` the daemon has `kept` some, by its own count. None: it gives no count, and has acknowledged those
    that are neither `missing` nor `waiting`. Of the waiting ones it has the `uncounted`, but has not examined them yet.
    `cut` counts processes that were gone before they sent END: what they had not sent is counted nowhere. `said` is the
    daemon's text on records that it refused.
    """

    ranks: int
    made: int
    kept: int | None
    missing: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    uncounted: int = 0
    cut: int = 0
    settled: bool = False
    said: str = ""

    @property
    def acknowledged(self) -> int:
        """Records that the daemon has on disk, as far as is known."""
        return max(0, self.made - sum(self.missing.values()) - self.waiting)


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """A command that has ended.

    `to` is the daemon's address if the user gave one, `usual` the one that `deepprof watch` takes by default, None if
    that is unknown. `since_unix_ns` is when the agent that the run found began: a later agent has nothing of the
    time before it. `going` are processes of the command that have outlived it.
    """

    job: str
    to: str | None = None
    since_unix_ns: int | None = None
    going: Collection[int] = ()
    usual: str | None = None


def select(answer: AgentStatus, job: str, before: Collection[str]) -> list[ProcessStatus]:
    """Return the job's processes except those of `before`, the sessions that were known when the command began."""
    return [each for each in answer.processes if each.job == job and each.session not in before]


def add_up(processes: Iterable[ProcessStatus], is_alive: Callable[[int], bool]) -> RunAccount:
    """Return the numbers of `processes`.

    The command has ended, so that a process that `is_alive` belongs to another run of the same job: it is not waited
    for. Several processes that were one rank, one after the other, have a spool each. A process that was refused has
    records and no rank: these were not sent.
    """
    ours = list(processes)
    told = [each for each in ours if each.records and each.rank is not None]
    books = [each.books for each in ours if each.records]
    ended = all(each.ended or is_alive(each.pid) for each in ours)
    kept = [sum(each.kept.values()) for each in books if each.kept is not None]
    return RunAccount(
        ranks=len({each.rank for each in told}),
        made=sum(sum(each.made.values()) for each in books),
        kept=sum(kept) if len(kept) == len(books) else None,
        missing=sum((Counter(each.reasons) for each in books), Counter[str]()),
        waiting=sum(each.waiting for each in books),
        uncounted=sum(each.uncounted for each in books),
        cut=sum(any(notice.code == CUT for notice in each.notices) for each in told),
        settled=ended and not any(each.unsent or each.books.waiting for each in told if each.ended),
        said=next((each.refusal for each in told if each.refusal), ""),
    )


def describe(answer: AgentStatus, run: FinishedCommand, processes: list[ProcessStatus], account: RunAccount) -> str:
    """Return the line that a run ends with."""
    is_another = run.since_unix_ns is not None and answer.began_unix_ns > run.since_unix_ns
    if account.ranks:
        said = _list_numbers(answer, account, is_another=is_another)
    elif is_another and not processes:
        said = "the agent ended on the way; what it had taken is on disk, and is sent by the one started again"
    elif run.going:
        said = "nothing was collected so far"
    else:
        said = f"nothing was collected: {_explain_nothing(answer, processes)}"
    rest = [f"refused: {why}" for why in _list_refusals(answer, processes)] if account.ranks else []
    rest += [f"its process {min(run.going)} runs on"] if run.going else []
    if account.waiting and not answer.connected and answer.trouble in AWAY:
        how = " (deepprof serve)" if answer.to.startswith("unix:") else ""  # another machine's cannot be started here
        rest.append(f"they are sent once the daemon runs{how}")
    elif account.ranks or rest:
        rest.append(f"deepprof watch {_name_daemon(answer, run)}--job {run.job}")
    return "; ".join([f"job {run.job}: {said}", *rest])


def _name_daemon(answer: AgentStatus, run: FinishedCommand) -> str:
    """Return the address for `deepprof watch`, empty if that takes it by default.

    The records are where the agent sends them, whatever address this command was given.
    """
    at = answer.to or run.to or ""
    return f"{at} " if at and (run.to or run.usual not in {None, at}) else ""


def _list_numbers(answer: AgentStatus, account: RunAccount, *, is_another: bool) -> str:
    """Return what became of the records; `is_another`: the agent was started again meanwhile."""
    parts = [counted(account.ranks, "rank"), *_list_kept(answer, account)]
    parts += ["since the agent was started again"] if is_another else []
    unsent = account.waiting - account.uncounted
    if unsent:
        why = answer.trouble or ("they are on their way" if answer.connected else "the daemon is away")
        parts.append(f"{unsent:,} wait on disk ({why})")
    parts += [f"{account.uncounted:,} not yet looked at"] if account.uncounted else []
    parts += list_missing(account.missing, account.said) or ["0 lost"]
    return ", ".join(parts) + _describe_cut(account.cut)


def _list_kept(answer: AgentStatus, account: RunAccount) -> list[str]:
    """Return how many records there were and how many of them the daemon has: one number where it has all."""
    word, count = ("acknowledged", account.acknowledged) if account.kept is None else ("kept", account.kept)
    to = answer.to or "the daemon"
    if count == account.made:
        return [f"{counted(count, 'record')} {word} by {to}"]
    return [f"{counted(account.made, 'record')} made", f"{count:,} {word} by {to}"]


def list_missing(missing: Mapping[str, int], said: str = "") -> list[str]:
    """Return the missing records by reason, most first; `said` is the daemon's text on those that it refused."""
    order = sorted(missing.items(), key=lambda each: (-each[1], each[0]))
    why = {REFUSED: f" ({shorten(printable(said), SAID_CHARS)})"} if said else {}
    return [f"{count:,} {reason}{why.get(reason, '')}" for reason, count in order if count]


def _describe_cut(count: int) -> str:
    """Return the text on what the numbers leave out, for `count` processes that did not send END."""
    if not count:
        return ""
    who = "1 process that never said its end" if count == 1 else f"{count:,} processes that never said their end"
    return f" but what {who} had not sent"


def _list_refusals(answer: AgentStatus, processes: list[ProcessStatus]) -> list[str]:
    """Return why processes were refused, except those of other jobs or runs."""
    ours = {each.pid for each in processes}
    others = {each.pid for each in answer.processes} - ours
    return list(dict.fromkeys(each.why for each in answer.refused if each.why and each.pid not in others))[:SHOWN]


def _explain_nothing(answer: AgentStatus, processes: list[ProcessStatus]) -> str:
    """Return why no record came, as far as refusals and notices state it."""
    notices = [notice.text for each in processes for notice in each.notices if notice.text]
    said = list(dict.fromkeys([*_list_refusals(answer, processes), *notices]))[:SHOWN]
    if said:
        return "; ".join(said)
    if processes:
        return "its processes ran no GPU kernel and no PyTorch operator"
    where = f" where it sees {answer.socket} and has DeepProf's library in it" if answer.socket else ""
    return f"no process ran a GPU kernel or a PyTorch operator{where}; deepprof doctor says what this machine lacks"
