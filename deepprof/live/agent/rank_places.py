"""Places: which rank of which job a process is, by the environment variables of its launcher and scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from deepprof.live.agent.job_names import clean_name, is_name

VARIABLES = (  # all that `find_place` reads: a collector sends them to the agent
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "TORCHELASTIC_RUN_ID"),
    *("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_STEP_ID"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALRANKID"),
    *("JOB_COMPLETION_INDEX", "JOB_NAME", "POD_NAME", "HOSTNAME"),
    *("DEEPPROF_JOB", "DEEPPROF_RANK", "DEEPPROF_WORLD_SIZE"),
)
HIGHEST = 999_999  # rank, as wire.limits has it, without polars
NO_RUN_IDS = {"", "none"}  # what torchrun sets for a run without a name
DIGITS = 7
SHOWN = 40  # characters of a wrong value


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Which `rank` of a job of `world_size` a process is, None if unknown; `how` names the source, for people."""

    rank: int | None = None
    world_size: int | None = None
    job: str | None = None
    how: str = ""


@dataclass(frozen=True, slots=True)
class _Launcher:
    """A launcher that numbers processes: the variable with the number, those with the count, and when they apply."""

    name: str
    rank: str
    sizes: tuple[str, ...] = ()
    applies: Callable[[Mapping[str, str]], bool] = bool


def _in_step(variables: Mapping[str, str]) -> bool:
    """Whether srun numbers the process: a batch script is also process 0 of all tasks, but no task itself."""
    tasks = variables.get("SLURM_STEP_NUM_TASKS") or variables.get("SLURM_NTASKS") or "1"
    return "SLURM_STEP_ID" in variables or tasks == "1"


def _is_pod_whole(variables: Mapping[str, str]) -> bool:
    """Whether a pod is one rank: a launcher in it that numbers its own children sets LOCAL_RANK."""
    return "LOCAL_RANK" not in variables


# The launcher nearest to the process comes first: torchrun inside srun inside a batch script numbers it best.
LAUNCHERS = (
    _Launcher("deepprof", "DEEPPROF_RANK", ("DEEPPROF_WORLD_SIZE", "WORLD_SIZE")),
    _Launcher("torchrun", "RANK", ("WORLD_SIZE",)),
    _Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    _Launcher("PMI", "PMI_RANK", ("PMI_SIZE",)),  # MPICH, Intel MPI
    _Launcher("PMIx", "PMIX_RANK", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
    _Launcher("SLURM", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), _in_step),
    _Launcher("Kubernetes", "JOB_COMPLETION_INDEX", ("WORLD_SIZE",), _is_pod_whole),
)


def find_place(variables: Mapping[str, str]) -> RankPlace:
    """Return the place that the environment `variables` give a process; invalid values are left out."""
    ignored: list[str] = []
    rank, world_size, how = _find_rank(variables, ignored)
    job, named = _find_job(variables, ignored)
    said = [text for text in (how, named, f"ignored {', '.join(ignored)}" if ignored else "") if text]
    return RankPlace(rank, world_size, job, "; ".join(said) or "nothing in the environment names a rank or a job")


def _find_rank(variables: Mapping[str, str], ignored: list[str]) -> tuple[int | None, int | None, str]:
    """Return rank, size and their source, from the nearest launcher with valid values."""
    for launcher in LAUNCHERS:
        rank = _read_number(variables, launcher.rank, 0, HIGHEST, ignored)
        if rank is None or not launcher.applies(variables):
            continue
        size = next(_read_sizes(variables, launcher.sizes, ignored), None)
        if size is None or rank < size:
            return rank, size, f"rank {rank} of {size or 'an unknown number'} by {launcher.name} ({launcher.rank})"
        ignored.append(f"{launcher.rank}={rank} in a job of {size}")
    return _find_local(variables, ignored)


def _find_local(variables: Mapping[str, str], ignored: list[str]) -> tuple[int | None, int | None, str]:
    """Return the rank from a node's number and a number within the node, where they are enough for one."""
    local = _read_number(variables, "LOCAL_RANK", 0, HIGHEST, ignored)
    names = [name for name in ("NODE_RANK", "GROUP_RANK", "JOB_COMPLETION_INDEX") if name in variables]
    node = _read_number(variables, names[0], 0, HIGHEST, ignored) if names else None
    each = _read_number(variables, "LOCAL_WORLD_SIZE", 1, HIGHEST + 1, ignored)
    size = next(_read_sizes(variables, ("WORLD_SIZE",), ignored), None)
    if local is None or node is None or (node and each is None) or (each is not None and local >= each):
        return None, None, ""
    rank = node * (each or 0) + local  # on the first node the number within it is the rank, however many there are
    if rank > HIGHEST or (size is not None and rank >= size):
        return None, None, ""
    return rank, size, f"rank {rank} by {names[0]}={node} and LOCAL_RANK={local}"


def _read_sizes(variables: Mapping[str, str], names: tuple[str, ...], ignored: list[str]) -> Iterator[int]:
    for name in names:
        size = _read_number(variables, name, 1, HIGHEST + 1, ignored)
        if size is not None:
            yield size


def _read_number(variables: Mapping[str, str], name: str, least: int, most: int, ignored: list[str]) -> int | None:
    """Return a variable's whole number, None for none; a value that is no such number is added to `ignored`."""
    text = variables.get(name, "").strip()
    if text.isascii() and text.isdecimal() and len(text) <= DIGITS and least <= int(text) <= most:
        return int(text)
    if text and (said := f"{name}={text[:SHOWN]!r}") not in ignored:
        ignored.append(said)
    return None


def _find_job(variables: Mapping[str, str], ignored: list[str]) -> tuple[str | None, str]:
    """Return the name of the job and its source: the user's setting, else the scheduler's, alike on all nodes."""
    for name, text in _job_names(variables):
        job = text if is_name(text) else clean_name(text)
        if job is not None:
            return job, f"job by {name}" + ("" if job == text else f" (from {text[:SHOWN]!r})")
        if text:
            ignored.append(f"{name}={text[:SHOWN]!r}")
    return None, ""


def _job_names(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield names that the job may have, the best first, after the variables that they come from."""
    yield "DEEPPROF_JOB", variables.get("DEEPPROF_JOB", "")
    number = variables.get("SLURM_JOB_ID", "")
    if number:
        yield "SLURM_JOB_ID", f"{variables.get('SLURM_JOB_NAME') or 'slurm'}-{number}"
    index = variables.get("JOB_COMPLETION_INDEX", "")
    if index:
        yield "JOB_NAME", variables.get("JOB_NAME", "")
        host = variables.get("HOSTNAME", "")
        yield "HOSTNAME", host.removesuffix(f"-{index}") if host.endswith(f"-{index}") else ""
    run = variables.get("TORCHELASTIC_RUN_ID", "")
    yield "TORCHELASTIC_RUN_ID", "" if run.lower() in NO_RUN_IDS else run
