"""Names of a trace are text, whatever is in them: the page shows them, cut where they are long, and runs nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deepprof
from deepprof.analysis import Analysis
from deepprof.web.package import PageDocuments
from tests.browsing import NARROW, WIDE, Visit, browser
from tests.collectors.documents import event, kernel
from tests.deepprof.web.pages import open_page, play_file, write_page
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

IMAGE = "<img src=x onerror=alert(1)>"
LONG = "x" * 10_000
# What a trace states, and what is seen of it.
HOSTILE = {
    f"</script>{IMAGE}": f"</script>{IMAGE}",
    "javascript:alert(1)": "javascript:alert(1)",
    "&lt;b&gt;&amp;": "&lt;b&gt;&amp;",
    "right\u202eto\u2066left\u200b": "right⟨U+202E⟩to⟨U+2066⟩left⟨U+200B⟩",
    "nul\0bell\x07\x7fend": "nul␀bell␇␡end",
    "half\ud800pair": "half\N{REPLACEMENT CHARACTER}pair",
    "__proto__": "__proto__",
    "constructor": "constructor",
    LONG: "x" * 40,
}
STEPS = 8
TITLE = f"job {IMAGE.replace('/', '')} &amp; \u202e.json"


def play_names() -> list[dict[str, Any]]:
    """Return iterations of an operator and a kernel of every name, in a range and a function that have one, too."""
    markup, events, number = f"</script>{IMAGE}", [], 0
    function = f"{markup}file.py(12): {markup}run"
    for step in range(STEPS):
        start = 1_000 * step
        events += [
            event("user_annotation", f"range {markup}", start, 950, 1, 1),
            event("python_function", function, start + 1, 940, 1, 1, **{"Python id": step + 1}),
        ]
        for at, name in enumerate(HOSTILE):
            number += 1
            own = start + 10 + 100 * at
            linked = {"External id": number}
            events += [
                event("cpu_op", name, own, 90, 1, 1, **linked),
                event("cuda_runtime", "cudaLaunchKernel", own + 5, 10, 1, 1, correlation=number, **linked),
                kernel(name, own + 20, 60 + at, correlation=number, **linked),
            ]
    return events


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Return the analysis of a file whose own name is hostile, too."""
    file = play_file(play_names(), tmp_path_factory.mktemp("names"))
    return deepprof.analyze(deepprof.read(file.rename(file.with_name(TITLE)), details=True))


@pytest.fixture(scope="module")
def page(analysis: Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return its page."""
    return write_page(analysis, tmp_path_factory.mktemp("page"))


@pytest.fixture
def seen(page: Path, browser: Browser) -> Any:
    """Open the page, and state at the end that nothing of a name ran or was requested."""
    visit = open_page(browser, page, size=WIDE)
    yield visit
    visit.check()
    assert visit.page.evaluate("performance.getEntriesByType('resource').length") == 0
    assert visit.page.locator("img, iframe, object, embed, form, main script, [onerror], [onclick]").count() == 0
    visit.page.context.close()


def document(analysis: Analysis, key: str) -> dict[str, Any]:
    """Return a document of the page."""
    found = PageDocuments(analysis).find(key)
    assert found is not None
    return json.loads(found)


def rows_named(values: dict[str, Any], column: str) -> dict[str, int]:
    """Return the first row of every name in a document."""
    return {values["strings"][name]: row for row, name in reversed(list(enumerate(values[column]))) if name >= 0}


@pytest.mark.parametrize(("key", "column"), [("timeline", "title"), ("flame/0/down", "name")])
def test_boxes_say_the_names_as_they_are(seen: Visit, analysis: Analysis, key: str, column: str) -> None:
    rows = rows_named(document(analysis, key), column)
    for name, shown in HOSTILE.items():
        read = name.replace("\ud800", "\N{REPLACEMENT CHARACTER}")
        row = next(row for text, row in rows.items() if text.startswith(read[:40]))
        seen.open(f"{key.split('/', maxsplit=1)[0]}?box={row}")
        title = seen.text(".inspector h2")
        assert title.startswith(shown)
        assert len(title) <= 160
        label = json.dumps(shown, ensure_ascii=False)
        assert seen.page.locator(f"[role=treeitem][aria-selected=true][aria-label^={label}]").count() == 1
    labels = seen.page.locator(".boxes [aria-label], .boxes text, .boxes title").all()
    texts = [label.get_attribute("aria-label") or label.text_content() or "" for label in labels]
    assert max(map(len, texts)) <= 300
    assert not any(re.search("[\0-\x1f\x7f\u202e\u2066\u200b]", text) for text in texts)


def test_a_kernel_says_its_whole_name_where_its_short_one_is_another(seen: Visit, analysis: Analysis) -> None:
    values = document(analysis, "timeline")
    kernels = [row for row, kind in enumerate(values["kind"]) if values["kinds"][kind] == "kernel"]
    for row in kernels:
        seen.open(f"timeline?box={row}")
        assert len(seen.text(".inspector .name.full")) <= 500 if values["full"][row] >= 0 else True
    fulls = {values["strings"][values["full"][row]][:40] for row in kernels if values["full"][row] >= 0}
    assert {"javascript:alert(1)", "x" * 40} <= fulls


def test_iterations_and_findings_say_them_too(seen: Visit) -> None:
    seen.open("iterations")
    cells = seen.page.locator("main td .name, main td.name").all_inner_texts()
    assert {"&lt;b&gt;&amp;", "__proto__", "constructor"} <= set(cells)
    assert {"right⟨U+202E⟩to⟨U+2066⟩left⟨U+200B⟩", "nul␀bell␇␡end"} <= set(cells)
    assert max(map(len, cells)) <= 120
    seen.open("findings")
    assert f"</script>{IMAGE}" in seen.text()


def test_a_search_takes_any_text(seen: Visit) -> None:
    for text in (IMAGE, "(", "\\", "%", "__proto__", "\0", LONG):
        for view in ("timeline", "flame"):
            seen.open(view)
            seen.page.fill("input[type=search]", text)
            seen.page.wait_for_selector("main [role=status]:not(:empty)", state="attached")
            assert re.fullmatch(r"Nothing matches\.|\d+ of \d+ match\.", seen.text("main [role=status]"))
            seen.page.fill("input[type=search]", "")


def test_the_name_of_the_file_is_the_title(seen: Visit) -> None:
    seen.open("findings")
    shown = TITLE.replace("\u202e", "⟨U+202E⟩")
    assert seen.text("h1").endswith(shown)
    from playwright.sync_api import expect

    expect(seen.page).to_have_title(re.compile(re.escape("&amp; ⟨U+202E⟩.json")), timeout=PATIENCE_S * 1000)


def test_nothing_gets_wider_than_a_telephone(page: Path, browser: Browser) -> None:
    seen = open_page(browser, page, size=NARROW)
    for view in ("findings", "iterations", "timeline", "timeline?box=18", "flame", "flame?box=12"):
        seen.open(view)
        assert seen.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), view
    seen.check()
    seen.page.context.close()
