"""Frames: what recorders write, taken apart."""

from __future__ import annotations

import polars as pl
import pytest

from deepprof.metrics.contexts.frames import FRAMES, KIND, number_frames, read_frames


def read(kind: str, name: str | None) -> tuple[object, ...]:
    rows = pl.DataFrame({"kind": [kind], "name": [name]}, schema={"kind": KIND, "name": pl.String})
    found = read_frames(rows)
    assert found.schema == FRAMES
    return found.row(0)


@pytest.mark.parametrize(
    ("kind", "name", "frame"),
    [
        ("python", "train.py(12): step", ("python", "step", "train.py", 12)),
        ("python", "a (copy)/b(3).py(4): <listcomp>", ("python", "<listcomp>", "a (copy)/b(3).py", 4)),
        ("python", "<string>(1): <lambda>", ("python", "<lambda>", "<string>", 1)),
        ("python", "<built-in function print>", ("python", "<built-in function print>", None, None)),
        (
            "python",
            "<built-in method add_ of Tensor object at 0x7f2A>",
            ("python", "<built-in method add_ of Tensor object>", None, None),
        ),
        ("python", "$train.py:12 step", ("python", "step", "train.py", 12)),
        ("python", "$pjit.py:7 wrapper", ("python", "wrapper", None, None)),  # one of JAX's own files
        ("python", "$builtins isinstance", ("python", "$builtins isinstance", None, None)),
        ("python", "nn.Module: Linear_0", ("module", "Linear_0", None, None)),
        ("python", "a.py(99999999999): f", ("python", "f", "a.py", None)),  # no file has that line
        ("operator", "aten::add(1): x", ("operator", "aten::add(1): x", None, None)),
        ("range", "ProfilerStep#12", ("range", "ProfilerStep#*", None, None)),
        ("range", "train step 3", ("range", "train step *", None, None)),
        ("range", "layer1", ("range", "layer1", None, None)),  # another place than layer2
        ("range", "conv2.0", ("range", "conv2.0", None, None)),
        ("kernel", None, ("kernel", "", None, None)),
    ],
)
def test_a_name_is_taken_apart(kind: str, name: str | None, frame: tuple[object, ...]) -> None:
    assert read(kind, name) == frame


def test_equal_frames_have_one_number() -> None:
    names = pl.Series(["step 1", "step 2", "f.py(1): g", "step 1"])
    kinds = ["range", "range", "python", "operator", "range"]
    rows = pl.DataFrame({"kind": kinds, "name_id": [0, 1, 2, 3, 0]}, {"kind": KIND, "name_id": pl.UInt32})
    numbers, frames = number_frames(rows, names)
    assert numbers.to_list() == [0, 0, 1, 2, 0]
    assert frames["name"].to_list() == ["step *", "g", "step 1"]


def test_without_rows_there_are_no_frames() -> None:
    numbers, frames = number_frames(
        pl.DataFrame(schema={"kind": KIND, "name_id": pl.UInt32}), pl.Series([], dtype=pl.String)
    )
    assert (numbers.to_list(), frames.height, frames.schema) == ([], 0, FRAMES)
