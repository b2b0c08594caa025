"""Runs a test once with the C library and once with the numpy fallback."""

from collections.abc import Iterator

import pytest

from deepprof.mining import native


@pytest.fixture(scope="module", params=["native", "numpy"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "native":
        if native.library() is None:
            pytest.skip("no compiled library here: no C compiler, or DEEPPROF_NATIVE=0")
        yield "native"
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda: None)
        yield "numpy"
