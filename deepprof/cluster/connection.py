"""The connection to the workers: a scheduler that runs somewhere, or workers of our own for as long as needed.

Dask sends its tasks as pickles, so anyone who can connect to a scheduler or a worker can run code there. Workers of our
own therefore listen on 127.0.0.1 only, and use certificates that exist nowhere but in these processes: other users of
the machine reach the port, but not the workers.
"""

from __future__ import annotations

import logging
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.resource_tracker import ensure_running
from typing import TYPE_CHECKING, Any

from deepprof.cluster.tasks import tell_versions
from deepprof.collectors.errors import UsageError, escaped
from deepprof.job.parallel import len_share
from deepprof.libraries import count_cpus

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local"
ADDRESS = re.compile(r"(?:tcp|tls)://(?:\[[0-9a-fA-F:]{2,45}\]|[A-Za-z0-9._-]{1,253}):[0-9]{1,5}")
WAIT_S = 10  # for a scheduler to answer, and then for one of its workers to be there
INSTALL = "--cluster needs Dask distributed: pip install 'deepprof[cluster]'"
# A worker whose memory is over 70 % full writes to its disk; it is not killed, as a local run is not killed either.
# HTTP is off, as Dask has no certificates for it. Dask's profiler is off, as it samples all threads 100 times a second.
SETTINGS = {
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
}


def check_address(address: str, *, jobs: int | None = None) -> None:
    """Raise `UsageError` for an address that is neither `local` nor a scheduler's, and for `jobs` with a scheduler."""
    if address != LOCAL and ADDRESS.fullmatch(address) is None:
        shown = escaped(address[:80])
        raise UsageError(f"--cluster {shown}: give local, or a scheduler's address, such as tcp://host:8786")
    if address != LOCAL and jobs is not None:
        raise UsageError(f"--jobs with --cluster {address}: the scheduler's workers are as many as were started")


@contextmanager
def connect(address: str, *, workers: int | None = None) -> Iterator[Client]:
    """Give a client of the scheduler at `address`, or of as many `workers` of our own for `local`.

    Waits at most `WAIT_S` for the scheduler, and again for a worker. Raises `UsageError` if no scheduler answers, if
    there is no worker, if a worker has other versions, and without Dask.
    """
    check_address(address)
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise UsageError(INSTALL) from error
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # important errors reach the user as one line of our own
    try:
        with ExitStack() as stack:
            client = _start_local(stack, workers) if address == LOCAL else _find_scheduler(stack, address)
            check_workers(client, address)
            yield client
    finally:
        logger.setLevel(level)


def _start_local(stack: ExitStack, workers: int | None) -> Client:
    """Return a client of workers on this machine, which end with `stack`."""
    import dask
    from distributed import Client, LocalCluster, Security

    number = workers or count_cpus()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="deepprof-", ignore_cleanup_errors=True))
    stack.enter_context(dask.config.set(SETTINGS | {"temporary-directory": folder}))
    with uninterrupted():
        cluster = LocalCluster(
            n_workers=number,
            threads_per_worker=1,
            host="127.0.0.1",
            protocol="tls://",
            security=Security.temporary(),
            dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},  # else it needs port 8787
            local_directory=folder,
            silence_logs=logging.CRITICAL,
            env={"POLARS_MAX_THREADS": str(len_share(number))},
        )
        stack.enter_context(cluster)
    client: Client = stack.enter_context(Client(cluster, set_as_default=False, timeout=WAIT_S))
    return client


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C to the end; threads and processes started meanwhile never get it, since this process passes it on.

    They inherit the signal mask. Threads that existed before, such as a library's, still take the signal, and Python
    then runs its handler in the main thread: that handler only notes the signal.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    ensure_running()  # starts the standard library's resource tracker, which would unblock the signal
    with _noted_interrupt():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _noted_interrupt() -> Iterator[None]:
    """Raise a Ctrl-C of the main thread after the block, not within it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
    if came:
        signal.raise_signal(signal.SIGINT)


def _find_scheduler(stack: ExitStack, address: str) -> Client:
    """Return a client of the scheduler at `address`; for tls:// Dask's own configuration names the certificates."""
    from distributed import Client

    try:
        client: Client = stack.enter_context(Client(address, set_as_default=False, timeout=WAIT_S))
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        problem = escaped(str(error).partition("\n")[0])[:160]
        advice = "check the address, and that `dask scheduler` runs there"
        raise UsageError(f"--cluster {address}: no scheduler answers ({problem}); {advice}") from error
    return client


def check_workers(client: Client, address: str) -> None:
    """Raise `UsageError` unless there are workers, all of them with our versions."""
    try:
        client.wait_for_workers(1, timeout=WAIT_S)
    except TimeoutError as error:
        text = f"--cluster {address}: the scheduler has no worker; start some with `dask worker {address}`"
        raise UsageError(text) from error
    wanted = tell_versions()
    for worker, told in client.run(tell_versions, on_error="return").items():
        if told != wanted:
            text = f"--cluster: worker {worker} has {_describe(told)}, this command {_describe(wanted)}"
            raise UsageError(f"{text}; install the same versions everywhere, so that results are the same")


def _describe(told: Any) -> str:
    """Return the versions that a worker reported, or its error, in a few words."""
    if isinstance(told, dict):
        return ", ".join(f"{name} {version}" for name, version in told.items())
    return f"no DeepProf ({escaped(str(told).partition(chr(10))[0])[:100]})"
