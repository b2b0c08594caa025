"""What a process shows of its environment is what the agent examines: in C, in Python, and in the agent."""

from __future__ import annotations

import re

from deepprof.collectors.live.identity import PLACES
from deepprof.live.agent.rank_places import VARIABLES
from tests.collectors.live.building import INJECT


def test_both_collectors_tell_all_that_a_place_is_found_by() -> None:
    text = (INJECT / "identity.c").read_text()
    table = re.search(r"PLACES\[\] = \{(.*?)\}", text, re.DOTALL)
    assert table is not None
    in_c = set(re.findall(r'"(\w+)"', table[1]))
    assert in_c == set(PLACES)
    assert set(VARIABLES) <= in_c
