"""The sources that are wanted, and the jobs that they are called after."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepprof.live.agent.job_names import is_name
from deepprof.live.agent.kineto.schedule import WindowSchedule
from deepprof.live.agent.sources import SourceOptions, make_sources
from deepprof.live.client.endpoint import find_endpoint


def jobs(folder: Path, source_options: SourceOptions) -> list[object]:
    endpoint = find_endpoint(f"unix:{folder}/d.sock")
    return [
        each.state().get("job") for each in make_sources(source_options, folder, endpoint, pytest.fail, pytest.fail)
    ]


def test_nothing_is_wanted(tmp_path):
    assert jobs(tmp_path, SourceOptions()) == []


@pytest.mark.parametrize(
    ("name", "job"), [("train", "train"), ("my run (2)", "my-run-2"), ("übung", "bung"), ("...", "job"), ("é", "job")]
)
def test_a_job_is_called_after_its_file_or_directory(tmp_path, name, job):
    source_options = SourceOptions(tail=tmp_path / f"{name}.rpd", watch=tmp_path / f"{name}-")
    named = jobs(tmp_path, source_options)
    assert all(is_name(str(each)) for each in named)
    assert named[0] == job


def test_the_name_that_was_given_is_taken(tmp_path):
    source_options = SourceOptions(tail=tmp_path / "a.rpd", watch=Path("/"), kineto=WindowSchedule(), job="mine")
    assert set(jobs(tmp_path, source_options)) == {"mine", None}  # a window's job is its process'
    assert jobs(tmp_path, SourceOptions(watch=Path("/"))) == ["job"]
