"""nvprof's files with what no nvprof writes: counted or refused, never a bug."""

import pytest

from tests.collectors.nvprof_files import START, kernel, read_text


@pytest.mark.parametrize(("number", "dropped"), [(65_535, {}), (65_536, {"invalid-place": 1})])
def test_a_device_beyond_all_numbers(tmp_path, number, dropped):
    trace = read_text(tmp_path / "a.csv", START + kernel(1).replace("(0)", f"({number})") + kernel(2))
    assert trace.device_events.height == (1 if number > 65_535 else 2)
    assert trace.accounting.dropped == (dropped)
    assert trace.devices["device"].to_list() == ([0] if number > 65_535 else [0, 65_535])
