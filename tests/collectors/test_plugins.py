import warnings
from importlib.metadata import EntryPoint

import pytest

from deepprof.collectors import plugins
from deepprof.collectors.errors import EndRequest


@pytest.fixture
def installed(monkeypatch):
    points = []
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point for point in points if point.group == group])
    return lambda name, value: points.append(EntryPoint(name, value, "deepprof.test"))


def load(*builtins):
    """Return what is loaded; of a plug-in the fence is told that it was here."""
    return plugins.load("deepprof.test", builtins, lambda extension, plugin: extension)


def test_builtins_come_first_and_classes_are_instantiated(installed):
    installed("zeta", "collections:Counter")
    installed("alpha", "math:pi")
    loaded = load("collections:OrderedDict", "math:e")
    assert [type(extension).__name__ for extension in loaded] == ["OrderedDict", "float", "float", "Counter"]
    assert loaded[1:3] == [pytest.approx(2.718, abs=1e-3), pytest.approx(3.142, abs=1e-3)]


def test_one_name_is_loaded_once(installed):
    installed("tau", "math:tau")
    installed("again", "math:tau")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load("math:tau")) == 1
    assert len(load()) == 1


@pytest.mark.parametrize("value", ["no.such.module:Thing", "math:no_such_name", "fractions:Decimal.no", "io:IOBase.x"])
def test_what_fails_to_load_is_one_warning_that_names_it(installed, value):
    installed("broken", value)
    with pytest.warns(
        UserWarning, match=rf"^plug-in broken \({value}\) raised \w+: .*; uninstall or report it to its author$"
    ) as caught:
        assert load("math:pi") == [pytest.approx(3.14159, abs=1e-5)]
    assert len(caught) == 1


def test_a_class_that_cannot_be_made_is_a_warning():
    with pytest.warns(UserWarning, match="datetime:date does not load: TypeError"):
        assert load("datetime:date") == []


def test_a_request_to_end_is_no_failure_of_a_plug_in():
    def work() -> None:
        raise EndRequest(143)

    with pytest.raises(EndRequest):
        plugins.PlugIn(EntryPoint("name", "module:Name", "deepprof.test")).attempt(work, None)
