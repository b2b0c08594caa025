"""From the device to the daemon: emitted = kept by the daemon + missing by named reason, of every kind of record.

The real library with a made-up CUPTI, a real agent and a real daemon, for every scenario of `job.c` and program of
`training.c`. The table of the mixed one is printed by
`pytest -s tests/deepprof/live/agent/test_true_numbers.py -k mixed`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from deepprof.collectors.live.packets import NO_COPY, RECORD_KINDS
from deepprof.collectors.trace import ACTIVITIES, COPY_KINDS
from deepprof.live.agent.answers import CUT, AgentStatus, RecordAccount
from deepprof.live.agent.asking import ask
from deepprof.live.agent.draining import is_alive
from deepprof.live.agent.summary import add_up, select
from deepprof.live.client.errors import DaemonError
from tests.collectors.live.building import build
from tests.collectors.live.reader import TRUTH, start_job
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.agent.agents import AgentProcess, Job, running_agent
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.sending import open_client
from tests.patience import PATIENCE_S, UNHURRIED

DEADLINE_S = PATIENCE_S
FOREVER = 10_000_000
KIND_OF = {3: "kernel", 10: "kernel", 1: "memcpy", 22: "memcpy", 2: "memset", 51: "graph", 38: "sync"}
COPIES = (*range(len(COPY_KINDS)), NO_COPY)


@dataclass(frozen=True)
class Scenario:
    """A job of `job.c`, or of `training.c`: its words, and the data on its end.

    `enough`: it runs until this many records have come, and is instructed to end. `untold`: how many records it lost no
    one can know, and a notice of this code states that there were some. `processes` have records."""

    name: str
    words: tuple[object, ...]
    settings: Mapping[str, object] = field(default_factory=dict)
    enough: int = 0
    untold: int = 0
    exit: int = 0
    processes: int = 1
    program: str = "job"

    def __str__(self) -> str:
        return "-".join([self.name, *(str(value) for value in self.settings.values())])


PATIENT: Mapping[str, object] = {"MOCK_PATIENT": 1}
LAUNCHES: Mapping[str, object] = {"MOCK_PATIENT": 1, "DEEPPROF_GRAPHS": "launches"}
CRAMPED: Mapping[str, object] = {"MOCK_PATIENT": 1, "DEEPPROF_QUEUE_NBYTES": 1 << 17}

SCENARIOS = [
    Scenario("mixed", (3000,), PATIENT),
    Scenario("mixed", (3000,), LAUNCHES),
    Scenario("threads", (2000, 8), PATIENT),
    Scenario("burst", (200_000,)),
    Scenario("burst", (200_000,), CRAMPED),  # the job's own queue overflows, unless the agent is very quick
    Scenario("late", (30_000,), PATIENT),
    Scenario("backward", (2000,), PATIENT),
    Scenario("garbage", (5000,), PATIENT),
    Scenario("dropped", (60_000,), PATIENT),
    Scenario("unfinished", (600,), PATIENT),
    Scenario("names", (5000,), PATIENT),
    Scenario("paused", (200,)),
    Scenario("stray", (200,)),
    Scenario("broken", (300,), PATIENT, untold=8),
    Scenario("steady", (FOREVER,), enough=2000),
    Scenario("beside", (10,), enough=50),
    Scenario("killed", (20_000,), untold=CUT, exit=-signal.SIGKILL),
    Scenario("fork", (500,), processes=3),
    *(Scenario(name, (60,), program="training") for name in ("eager", "graphs", "devices", "workers", "checkpoints")),
    Scenario("waiting", (60,), program="training"),
    Scenario("profiled", (60,), program="training"),
    Scenario(  # that the other one is still there nothing shows: it is left alone for six of the longest pauses
        "unannounced", (60,), {"DEEPPROF_RETRY_MS": 20, "JOB_LEFT_ALONE_MS": 6 * 20}, program="training", untold=10
    ),
    Scenario("signalled", (200,), program="training", untold=CUT, exit=-signal.SIGTERM),
]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as started:
        yield started
    assert not [line for line in started.log if line["level"] in {"error", "critical"}]


@pytest.fixture(scope="module")
def agent(daemon: Daemon) -> Iterator[AgentProcess]:
    with running_agent(daemon.folder, daemon.address) as started:
        yield started


@dataclass
class Emitted:
    """What a job's device has made: by kind, and how many it had no room for, of whatever kind."""

    kinds: Counter[str]
    dropped: int


def run(scenario: Scenario, agent: AgentProcess, job: str, folder: Path) -> Emitted:
    """Run a scenario to its end; returns what its device has made."""
    truth = folder / "truth"
    settings = {"DEEPPROF_SOCKET": agent.socket, "DEEPPROF_JOB": job, "JOB_TRUTH": truth, **scenario.settings}
    process = start_job(build("plain"), [scenario.name, *scenario.words], settings, scenario.program)
    if scenario.enough:
        wait_for(lambda: count_records(agent, job) >= scenario.enough, "records come")
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (scenario.exit, "")
    numbers = [line.split() for line in out.splitlines()]
    kinds = Counter(KIND_OF.get(kind, "unknown") for kind in np.fromfile(truth, TRUTH)["kind"].tolist())
    launched = sum(int(kept) for kept, *_ in numbers)
    return Emitted(kinds or Counter(kernel=launched), sum(int(dropped) for _, dropped, _ in numbers))


def count_records(agent: AgentProcess, job: str) -> int:
    """Return how many records of a job the agent has heard of."""
    return sum(each.records for each in select(ask(agent.socket, DEADLINE_S), job, ()))


def wait_settled(agent: AgentProcess, job: str, processes: int) -> AgentStatus:
    """Return the agent's answer once this many processes of the job have ended, and nothing of them waits."""

    def look() -> AgentStatus | None:
        answer = ask(agent.socket, DEADLINE_S)
        ours = select(answer, job, ())
        is_over = len(ours) >= processes and all(each.ended for each in ours)
        return answer if is_over and add_up(ours, is_alive).settled else None

    return wait_for(look, f"everything of {job} is counted")


def add_books(answer: AgentStatus, job: str) -> RecordAccount:
    """Return the account of all processes of a job; that of each of them adds up for itself."""
    kept, made_, missing = Counter[str](), Counter[str](), dict[str, Counter[str]]()
    for each in select(answer, job, ()):
        books = each.account
        assert books.kept is not None
        for kind in {*books.made, *books.kept, *(kind for kinds in books.missing.values() for kind in kinds)}:
            gone = sum(kinds.get(kind, 0) for kinds in books.missing.values())
            assert books.made.get(kind, 0) == books.kept.get(kind, 0) + gone, (kind, books)
        kept.update(books.kept)
        made_.update(books.made)
        for reason, kinds in books.missing.items():
            missing.setdefault(reason, Counter()).update(kinds)
    return RecordAccount(dict(made_), dict(kept), {reason: dict(kinds) for reason, kinds in missing.items()})


def draw(emitted: Emitted, books: RecordAccount) -> str:
    """Return the table by kind, from the device to the daemon."""
    reasons, kept = sorted(books.missing), books.kept or {}
    lines = [f"{'kind':10}{'device':>10}{'library':>10}{'daemon':>10}" + "".join(f"{each:>16}" for each in reasons)]
    for kind in (*RECORD_KINDS, "unknown"):
        numbers = emitted.kinds[kind], books.made.get(kind, 0), kept.get(kind, 0)
        gone = [books.missing[reason].get(kind, 0) for reason in reasons]
        lines.append(f"{kind:10}" + "".join(f"{n:>10,}" for n in numbers) + "".join(f"{n:>16,}" for n in gone))
    return "\n".join(lines)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_what_the_device_makes_is_kept_or_missing_by_name(
    scenario: Scenario, daemon: Daemon, agent: AgentProcess, tmp_path: Path
) -> None:
    job = f"true-{scenario}"
    emitted = run(scenario, agent, job, tmp_path)
    answer = wait_settled(agent, job, scenario.processes)
    books = add_books(answer, job)
    sys.stdout.write(f"\n{draw(emitted, books)}\n")
    assert "unexplained" not in books.missing
    assert books.kept is not None
    unknown = sum(kinds.get("unknown", 0) for kinds in books.missing.values())
    unaccounted = 0
    for kind in ACTIVITIES:  # of ranges, which the library makes itself, the device has nothing
        known = books.kept.get(kind, 0) + sum(kinds.get(kind, 0) for kinds in books.missing.values())
        assert known <= emitted.kinds[kind]
        unaccounted += emitted.kinds[kind] - known
    if scenario.untold:
        codes = {notice.code for each in select(answer, job, ()) for notice in each.notices}
        assert scenario.untold in codes or not books.made
        assert unknown <= unaccounted + emitted.dropped
    else:  # what is of no recognized kind, and nothing else, is what the driver had lost before anybody had read it
        assert unaccounted + emitted.dropped == unknown
    check_daemon(daemon, answer, job, books)
    wait_for(lambda: is_forgotten(daemon, job), f"the daemon lets go of {job}")


def is_forgotten(daemon: Daemon, job: str) -> bool:
    """Have the daemon do no more for a job: it would examine it as a whole, in its own process."""
    with open_client(daemon) as client, suppress(DaemonError):  # a stream may still be open
        if any(each.job == job for each in client.jobs()):
            client.forget(job)
        return True
    return False


def check_daemon(daemon: Daemon, answer: AgentStatus, job: str, books: RecordAccount) -> None:
    """The daemon's own answer and its metrics come to state what the agent states, of the ranks that it still shows."""
    numbers = [each.rank for each in select(answer, job, ()) if each.rank is not None]
    if not numbers or len(set(numbers)) < len(numbers):  # of two processes that were one rank it shows the latter
        return
    kept, missing = Counter(books.kept), Counter(books.reasons)
    wait_for(lambda: ask_daemon(daemon, job) == (kept, missing), "the daemon to say what the agent says")
    wait_for(lambda: read_metric(daemon, "records_missing", job, "reason") == missing, "its metrics to say it")
    assert read_metric(daemon, "records_kept", job, "kind").total() == kept.total()


def ask_daemon(daemon: Daemon, job: str) -> tuple[Counter[str], Counter[str]]:
    """Return what the daemon has kept of a job, by kind, and what it has to be missing, by reason."""
    with open_client(daemon) as client:
        ranks = client.ranks(job)
    kept = Counter[str]()
    for each in (each for rank in ranks for each in rank.account.kinds):
        kept[each.kind if each.kind in ACTIVITIES else "range"] += each.accepted
    return +kept, sum((Counter(rank.account.missing) for rank in ranks), Counter[str]())


def read_metric(daemon: Daemon, name: str, job: str, label: str) -> Counter[str]:
    """Return a counter of a job, all ranks together, by a label."""
    found: Counter[str] = Counter()
    lines = re.findall(rf"^deepprof_{name}_total\{{(.*)\}} (\d+)", daemon.get("/metrics")[1], re.MULTILINE)
    for labels, value in lines:
        words = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if words["job_id"] == job:
            found[words[label]] += int(value)
    return found


def test_mixed_records_of_every_kind_arrive_as_they_were_emitted(daemon: Daemon, agent: AgentProcess) -> None:
    """All activities with all kinds of copies in one batch: what a real GPU's job gives, and a daemon once refused."""
    kinds = [(activity, copy) for activity in range(len(ACTIVITIES)) for copy in COPIES] * 7
    job = Job(agent, session=f"{77:032x}", env__DEEPPROF_JOB="round-trip", env__RANK=0)
    job.name("gemm")
    job.tick()
    rows = made.kernels(time.monotonic_ns() + 1000 * np.arange(len(kinds)))
    rows["activity"], rows["copy_kind"], rows["nbytes"] = [a for a, _ in kinds], [c for _, c in kinds], 100
    job.records(rows)
    job.end()
    books = add_books(wait_settled(agent, "round-trip", 1), "round-trip")
    each = 7 * len(COPIES)
    assert books.made == books.kept == dict.fromkeys(ACTIVITIES, each)
    assert books.missing == {}
    with open_client(daemon) as client:
        (rank,) = client.ranks("round-trip")
    assert {of.kind: of.accepted for of in rank.account.kinds} == dict.fromkeys(ACTIVITIES, each)
    assert (rank.account.accepted, rank.account.invalid) == (len(kinds), 0)
    copied = read_metric(daemon, "copied_bytes", "round-trip", "kind")
    assert copied == dict.fromkeys(COPY_KINDS, 7 * 100)  # of memcpys alone


def start_run(agent: AgentProcess, job: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as one types it, and return what came of it."""
    built = build("plain")
    env = {name: value for name, value in os.environ.items() if not name.startswith("DEEPPROF_")}
    env |= {"JOB_LIBRARY": str(built.library), "DEEPPROF_CUPTI": str(built.mock), "JOB": str(built.job), **UNHURRIED}
    words = [sys.executable, "-m", "deepprof", "run", "--job", job, "--agent", str(agent.socket), "--drain", "300"]
    return subprocess.run(
        [*words, "--", *command], capture_output=True, text=True, check=True, timeout=DEADLINE_S, env=env
    )


def test_the_last_line_is_short_where_all_is_kept(daemon: Daemon, agent: AgentProcess) -> None:
    done = start_run(agent, "all-well", "sh", "-c", "MOCK_PATIENT=1 $JOB mixed 800")
    kept = int(done.stdout.split()[0])
    line = f"deepprof: job all-well: 1 rank, {kept:,} records kept by {daemon.address}, 0 lost; deepprof watch"
    assert done.stderr.splitlines()[-1] == f"{line} {daemon.address} --job all-well"


def test_the_last_line_names_what_was_lost_before_the_agent_had_it(daemon: Daemon, agent: AgentProcess) -> None:
    done = start_run(agent, "some-lost", "sh", "-c", "MOCK_PATIENT=1 $JOB unfinished 600")
    words = f"1 rank, 600 records made, 300 kept by {daemon.address}, 300 driver-dropped; "
    assert words in done.stderr.splitlines()[-1]


def test_records_that_the_daemon_refuses_are_never_called_kept(tmp_path: Path) -> None:
    """It takes a thousand records in a batch, and is sent five thousand."""
    with running(settings=["limits.batch_records=1000"]) as strict, running_agent(strict.folder, strict.address) as own:
        command = "MOCK_PATIENT=1 RANK=0 $JOB backward 100; MOCK_PATIENT=1 RANK=1 $JOB backward 5000"
        line = start_run(own, "refused", "sh", "-c", command).stderr.splitlines()[-1]
        answer = ask(own.socket, DEADLINE_S)
        with open_client(strict) as client:
            accounts = [rank.account for rank in client.ranks("refused")]
    kept, refused = sum(a.accepted for a in accounts), sum(a.missing.get("refused", 0) for a in accounts)
    assert kept + refused == 5100
    assert kept >= 100
    assert refused > 0
    assert f"2 ranks, 5,100 records made, {kept:,} kept by {strict.address}, {refused:,} refused (" in line
    assert "at most 1000)" in line
    assert add_books(answer, "refused").missing == {"refused": {"kernel": refused}}


def test_what_an_agent_that_is_killed_had_in_hand_is_missing_by_kind(daemon: Daemon, tmp_path: Path) -> None:
    """The next one has never seen those records: how many there were the job has, and which are kept the daemon."""
    own = AgentProcess(daemon.folder / "own", daemon.address)
    own.folder.mkdir()
    truth = tmp_path / "truth"
    settings = {"DEEPPROF_SOCKET": own.socket, "DEEPPROF_JOB": "restarted", "JOB_TRUTH": truth}
    process = start_job(build("plain"), ["steady", FOREVER], settings)
    try:
        own.start()
        wait_for(lambda: any(each.durable > 1000 for each in ask(own.socket, DEADLINE_S).processes), "some arrived")
        own.kill()
        own.start()
        wait_for(lambda: count_records(own, "restarted") > 0, "the job goes on")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)
        books = add_books(wait_settled(own, "restarted", 1), "restarted")
    finally:
        process.kill()
        own.kill()
    emitted = len(np.fromfile(truth, TRUTH))
    assert books.made == {"kernel": emitted}
    assert books.kept is not None
    assert books.missing == {"agent-restarted": {"kernel": emitted - books.kept["kernel"]}}
