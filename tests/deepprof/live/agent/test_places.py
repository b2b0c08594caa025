"""Which rank of which job a process is, by what launchers and schedulers put into the environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.agent.job_names import NAME_CHARS
from deepprof.live.agent.rank_places import HIGHEST, LAUNCHERS, VARIABLES, RankPlace, find_place
from deepprof.live.wire.checking import check_name
from deepprof.live.wire.limits import LIMITS

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "GROUP_RANK": "1", "TORCHELASTIC_RUN_ID": "none"}
SBATCH = {"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "big run", "SLURM_NTASKS": "16", "SLURM_PROCID": "0"}
SRUN = {**SBATCH, "SLURM_STEP_ID": "0", "SLURM_PROCID": "3"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "2"}
INDEXED = {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-bert-1"}

TABLE = [
    ("nothing", {}, (None, None, None)),
    ("torchrun", TORCHRUN, (5, 8, None)),
    ("torchrun, named run", {**TORCHRUN, "TORCHELASTIC_RUN_ID": "night/3"}, (5, 8, "night/3")),
    ("a rank of its own without a size", {"RANK": "0"}, (0, None, None)),
    ("srun", SRUN, (3, 16, "big-run-77")),
    ("srun of fewer tasks than the job", {**SRUN, "SLURM_STEP_NUM_TASKS": "4"}, (3, 4, "big-run-77")),
    ("a batch script of many tasks", SBATCH, (None, None, "big-run-77")),
    ("a batch script of one task", {**SBATCH, "SLURM_NTASKS": "1"}, (0, 1, "big-run-77")),
    ("a batch script that says no tasks", {"SLURM_JOB_ID": "9", "SLURM_PROCID": "0"}, (0, None, "slurm-9")),
    ("torchrun in a batch script", {**SBATCH, **TORCHRUN}, (5, 8, "big-run-77")),
    ("torchrun under srun", {**SRUN, **TORCHRUN}, (5, 8, "big-run-77")),
    ("mpirun, whose daemons srun started", {**SRUN, "SLURM_PROCID": "1", **OPEN_MPI}, (2, 4, "big-run-77")),
    ("Open MPI", OPEN_MPI, (2, 4, None)),
    ("Intel MPI, MPICH", {"PMI_RANK": "6", "PMI_SIZE": "7", "MPI_LOCALRANKID": "0"}, (6, 7, None)),
    ("srun --mpi=pmix", {**SRUN, "PMIX_RANK": "3"}, (3, 16, "big-run-77")),
    ("PMIx alone", {"PMIX_RANK": "3"}, (3, None, None)),
    ("an indexed job", INDEXED, (1, None, "train-bert")),
    ("an indexed job that says more", {**INDEXED, "WORLD_SIZE": "2", "JOB_NAME": "bert"}, (1, 2, "bert")),
    ("torchrun in an indexed job", {**INDEXED, **TORCHRUN}, (5, 8, "train-bert")),
    (
        "local ranks in an indexed job",
        {**INDEXED, "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "16"},
        (11, 16, "train-bert"),
    ),
    ("local ranks in a pod, nobody says how many", {**INDEXED, "LOCAL_RANK": "3"}, (None, None, "train-bert")),
    ("the first node's local rank", {"NODE_RANK": "0", "LOCAL_RANK": "2", "WORLD_SIZE": "4"}, (2, 4, None)),
    ("another node's, nobody says how many", {"NODE_RANK": "1", "LOCAL_RANK": "2"}, (None, None, None)),
    ("a local rank that the node has not", {"NODE_RANK": "1", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, (None,) * 3),
    ("a local rank alone", {"LOCAL_RANK": "2"}, (None, None, None)),
    ("the user's word", {**SRUN, **TORCHRUN, "DEEPPROF_RANK": "1", "DEEPPROF_JOB": "mine"}, (1, 8, "mine")),
    ("all the user's words", {**TORCHRUN, "DEEPPROF_RANK": "1", "DEEPPROF_WORLD_SIZE": "2"}, (1, 2, None)),
    ("a host's name that no indexed job gave", {"HOSTNAME": "gpu-1", "JOB_NAME": "jenkins"}, (None, None, None)),
    ("a host's name of another index", {**INDEXED, "HOSTNAME": "gpu-21x"}, (1, None, None)),
]
NONSENSE = [
    ({"RANK": "abc"}, (None, None, None), "ignored RANK='abc'"),
    ({"RANK": "-1", "WORLD_SIZE": "4"}, (None, None, None), "ignored RANK='-1'"),
    ({"RANK": "1e3"}, (None, None, None), "ignored RANK='1e3'"),
    ({"RANK": "²"}, (None, None, None), "ignored RANK='²'"),
    ({"RANK": "1" * 5000}, (None, None, None), f"ignored RANK={'1' * 40!r}"),
    ({"RANK": "1000000"}, (None, None, None), "ignored RANK='1000000'"),
    ({"RANK": "3", "WORLD_SIZE": "many"}, (3, None, None), "ignored WORLD_SIZE='many'"),
    ({"RANK": "3", "WORLD_SIZE": "0"}, (3, None, None), "ignored WORLD_SIZE='0'"),
    ({"RANK": "4", "WORLD_SIZE": "4"}, (None, None, None), "ignored RANK=4 in a job of 4"),
    ({"RANK": "9", "WORLD_SIZE": "2", **OPEN_MPI}, (2, 4, None), "ignored RANK=9 in a job of 2"),
    ({"DEEPPROF_JOB": "my job!"}, (None, None, "my-job"), "job by DEEPPROF_JOB (from 'my job!')"),
    ({"DEEPPROF_JOB": "???", **SRUN}, (3, 16, "big-run-77"), "ignored DEEPPROF_JOB='???'"),
    ({"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "é" * 300}, (None, None, "77"), "job by SLURM_JOB_ID"),
]


@pytest.mark.parametrize(("variables", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_launchers_and_schedulers(variables, expected):
    place = find_place(variables)
    assert (place.rank, place.world_size, place.job) == expected


@pytest.mark.parametrize(("variables", "expected", "said"), NONSENSE)
def test_nonsense_is_left_out_and_said(variables, expected, said):
    place = find_place(variables)
    assert (place.rank, place.world_size, place.job) == expected
    assert said in place.how


def test_it_says_whence():
    assert find_place(TORCHRUN).how == "rank 5 of 8 by torchrun (RANK)"
    assert find_place({}).how == "nothing in the environment names a rank or a job"
    assert find_place({"RANK": "0"}).how == "rank 0 of an unknown number by torchrun (RANK)"


def test_an_empty_variable_is_one_that_is_not_set():
    assert find_place(dict.fromkeys(VARIABLES, "")) == find_place({})


def test_the_limits_are_the_wires():
    assert (LIMITS.rank, LIMITS.job_chars) == (HIGHEST, NAME_CHARS)


def test_a_collector_tells_all_that_is_looked_at():
    assert {launcher.rank for launcher in LAUNCHERS} < set(VARIABLES)
    assert {size for launcher in LAUNCHERS for size in launcher.sizes} < set(VARIABLES)


words = st.one_of(
    st.integers(-2, 12).map(str), st.text(max_size=200), st.sampled_from(["none", "x" * 200, "a b", "0x1"])
)


@given(st.dictionaries(st.sampled_from(VARIABLES), words))
def test_whatever_the_environment_says_the_place_can_be(variables):
    place = find_place(variables)
    assert isinstance(place, RankPlace)
    assert place.rank is None or 0 <= place.rank <= LIMITS.rank
    assert place.world_size is None or (place.rank is not None and place.rank < place.world_size)
    assert len(place.how) < 2_000
    if place.job is not None:
        check_name("job", place.job, LIMITS.job_chars)


@given(st.dictionaries(st.sampled_from(VARIABLES), words), st.integers(0, 99), st.integers(1, 99))
def test_what_the_user_says_wins(variables, rank, more):
    user = {"DEEPPROF_RANK": str(rank), "DEEPPROF_WORLD_SIZE": str(rank + more), "DEEPPROF_JOB": "mine"}
    place = find_place({**variables, **user})
    assert (place.rank, place.world_size, place.job) == (rank, rank + more, "mine")
