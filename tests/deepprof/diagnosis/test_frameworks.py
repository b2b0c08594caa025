"""Advice names what the trace's framework has."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from deepprof.diagnosis.frameworks import advise, framework_of
from tests.tables import make_trace


@pytest.mark.parametrize(
    ("names", "recorder", "framework"),
    [
        (["aten::add"], "nsys", "pytorch"),
        (["void at::native::vectorized_elementwise_kernel<4>"], "nsys", "pytorch"),
        (["ProfilerStep#3"], "kineto", "pytorch"),
        (["tensorflow::functor::FillPhiloxRandom"], "xplane", "tensorflow"),
        (["PjRtStreamExecutorLoadedExecutable::Execute"], "xplane", "jax"),
        (["fusion.1"], "xplane", "jax"),
        (["fusion.1"], "nsys-jax", "jax"),
        (["MyOwnSolver<float>"], "nsys", "other"),
        ([], "made-up", "other"),
    ],
)
def test_a_framework_is_known_by_its_names_or_its_format(names: list[str], recorder: str, framework: str) -> None:
    assert framework_of(replace(make_trace(names=names), format=recorder)) == framework


def test_advice_names_what_its_framework_has_and_nothing_of_others() -> None:
    special = {"pytorch": "torch.compile", "jax": "jit"}
    assert advise(make_trace(names=["aten::add"]), "Fuse.", **special) == "Fuse. torch.compile"
    assert advise(make_trace(names=["solver"]), "Fuse.", **special) == "Fuse."
