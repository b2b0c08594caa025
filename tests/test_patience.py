"""What tests wait with: an empty list is no answer yet, and any other error is one."""

import pytest

from tests.collectors.live.reader import await_truth
from tests.deploy.prometheus_server import wait_for


def test_the_last_of_a_list_may_be_waited_for_before_the_first_has_come():
    lists = iter([[], [], ["here"], [], ["here"]])
    assert wait_for(lambda: next(lists)[-1], "a word") == "here"
    await_truth(lambda: next(lists)[-1] == "here", "a word")


def test_other_errors_are_not_waited_out():
    with pytest.raises(KeyError):
        wait_for(lambda: {}["nobody"], "nobody")
