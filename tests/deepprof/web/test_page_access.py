"""The page is for everyone: checked by axe, by keys alone, in narrow windows, on paper and without motion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browsing import NARROW, WIDE, Visit, browser
from tests.deepprof.web.pages import analyze_ranks, listed_views, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

GRAVE = {"serious", "critical"}
SIZES = {"wide": WIDE, "narrow": NARROW}
REACHABLE = "a[href], button:enabled, select:enabled, input:enabled, [tabindex='0']"
# What can be reached by Tab and has not been, in words; a group of radio buttons is reached once.
LEFT_OUT = f"""reached => [...document.querySelectorAll("{REACHABLE}")]
    .filter(one => one.checkVisibility() && !one.matches("[data-reached], input[type=radio]:not(:checked)"))
    .map(one => one.outerHTML.slice(0, 120))"""
NOTE = """() => {
    const one = document.activeElement, again = one.dataset.reached !== undefined;
    if (one === document.body) return "outside";
    one.dataset.reached = "";
    const look = getComputedStyle(one), seen = look.outlineStyle !== "none" || one.matches("svg *, a, input");
    return again ? "again" : seen ? "" : one.outerHTML.slice(0, 120);
}"""


def open_states(seen: Visit, views: list[str]) -> Iterator[str]:
    """Show each view as it opens, and again with something chosen, searched and unfolded in it."""
    for view in views:
        seen.open(view)
        yield view
        for button in seen.page.locator("button[aria-expanded=false]").all():
            button.click()
        seen.open(f"{view}?rank=1&loop=1&iteration=5&box=3&finding=1&search=gemm")
        yield f"{view} in use"
    seen.page.keyboard.press("?")
    yield "help"


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        ("wide", "light"),
        ("narrow", "dark"),
        pytest.param("wide", "dark", marks=pytest.mark.slow),
        pytest.param("narrow", "light", marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing_grave(page: Path, browser: Browser, size: str, scheme: str) -> None:
    api = pytest.importorskip("axe_playwright_python.sync_playwright", reason='no axe; pip install ".[test]"')
    # The page's policy forbids scripts from elsewhere, axe's too.
    seen = open_page(browser, page, size=SIZES[size], color_scheme=scheme, bypass_csp=True)
    grave = {}
    for state in open_states(seen, listed_views(analyze_ranks())):
        violations = api.Axe().run(seen.page).response["violations"]
        grave[state] = [
            (rule["id"], [node["html"] for node in rule["nodes"]]) for rule in violations if rule["impact"] in GRAVE
        ]
    assert {state: found for state, found in grave.items() if found} == {}
    assert len(grave) == 15
    seen.check()
    seen.page.context.close()


def test_nothing_scrolls_sideways_on_a_telephone(page: Path, browser: Browser) -> None:
    seen = open_page(browser, page, size=NARROW)
    for state in open_states(seen, listed_views(analyze_ranks())):
        assert seen.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), state
    seen.check()
    seen.page.context.close()


@pytest.mark.widens(3)
@pytest.mark.parametrize("view", ["timeline", "findings", "memory", "iterations", "flame", "ranks"])
def test_tab_reaches_all_that_can_be_used_and_shows_where_it_is(seen: Visit, view: str) -> None:
    seen.open(view)
    seen.page.evaluate("document.body.focus()")
    unseen = []
    while (found := step(seen)) not in {"again", "outside"}:
        unseen += [found] if found else []
    assert unseen == []
    assert seen.page.evaluate(LEFT_OUT) == []


def step(seen: Visit) -> str:
    """Press Tab; return "again" or "outside" where it has been round, else what shows no sign that it is reached."""
    seen.page.keyboard.press("Tab")
    found: str = seen.page.evaluate(NOTE)
    return found


def chosen(seen: Visit) -> str:
    """Return what the box that is chosen states to readers."""
    return seen.page.locator(".boxes [aria-selected=true]").get_attribute("aria-label") or ""


def press(seen: Visit, *keys: str) -> None:
    """Press keys one after another, each after what the one before has changed is drawn."""
    for key in keys:
        seen.page.keyboard.press(key)
        seen.page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")


def test_views_are_opened_by_enter(seen: Visit) -> None:
    for title in ("Iterations", "Timeline", "Flame", "Ranks", "Copies and memory", "Findings"):
        seen.page.get_by_role("navigation").get_by_role("link", name=title).focus()
        press(seen, "Enter")
        seen.wait(title.split(" ")[-1].lower())
    press(seen, "Tab")


def test_the_first_tab_leads_past_all_views(seen: Visit) -> None:
    seen.open("flame")
    press(seen, "Tab", "Enter")
    assert seen.page.evaluate("document.activeElement.closest('main') !== null")


def test_arrows_choose_the_iteration_in_the_strip(seen: Visit) -> None:
    strip = seen.page.locator(".strip [role=slider]")
    strip.focus()
    for key, iteration in (("Home", "0"), ("ArrowRight", "1"), ("ArrowRight", "2"), ("ArrowLeft", "1"), ("End", "9")):
        press(seen, key)
        assert strip.get_attribute("aria-valuenow") == iteration
        assert f"iteration {iteration} of 10" in seen.text(".strip")
    press(seen, "ArrowRight")
    assert strip.get_attribute("aria-valuenow") == "9"


@pytest.mark.parametrize("view", ["timeline", "flame"])
def test_arrows_go_through_boxes(seen: Visit, view: str) -> None:
    seen.open(view)
    seen.page.locator(".boxes [tabindex='0']").first.focus()
    press(seen, "ArrowDown")
    whole = chosen(seen)
    press(seen, "ArrowDown")
    inner = chosen(seen)
    assert inner != whole
    press(seen, "ArrowRight")
    beside = chosen(seen)
    press(seen, "ArrowLeft")
    assert chosen(seen) == inner != beside
    press(seen, "Enter")
    deeper = chosen(seen)
    press(seen, "ArrowUp")
    assert chosen(seen) == inner != deeper
    press(seen, "Escape")
    assert chosen(seen) == whole
    assert seen.page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"


def test_a_slash_searches_and_a_question_mark_helps(seen: Visit) -> None:
    seen.open("timeline")
    press(seen, "/")
    seen.page.keyboard.type("gemm?/")
    assert seen.page.input_value("input[type=search]") == "gemm?/"
    press(seen, "Escape", "?")
    dialog = seen.page.get_by_role("dialog")
    assert "into the longest box below" in dialog.inner_text()
    press(seen, "Escape")
    assert dialog.count() == 0
    press(seen, "?", "Tab", "Enter")
    press(seen, "?", "?")
    assert dialog.count() == 1


def test_b_turns_the_flame_graph_round(seen: Visit) -> None:
    seen.open("flame")
    pressed = seen.page.locator("[aria-pressed=true]")
    seen.page.wait_for_selector("[aria-pressed=true]:has-text('top-down')")
    press(seen, "b")
    seen.page.wait_for_selector("[aria-pressed=true]:has-text('bottom-up')")
    press(seen, "b")
    seen.page.wait_for_selector("[aria-pressed=true]:has-text('top-down')")
    assert pressed.count() == 1


@pytest.mark.parametrize("view", ["timeline", "flame"])
def test_each_box_says_to_readers_what_it_shows(seen: Visit, view: str) -> None:
    seen.open(view)
    boxes = "boxes => boxes.map(box => [box.getAttribute('aria-label'), box.getAttribute('aria-level')])"
    said = seen.page.locator("[role=treeitem]").evaluate_all(boxes)
    assert len(said) > 5
    assert all(label and not label.startswith(",") and int(level) > 0 for label, level in said)


@pytest.mark.widens(2)
@pytest.mark.parametrize("theme", ["dark", "auto"])
def test_on_paper_a_view_is_light_and_whole(page: Path, browser: Browser, theme: str) -> None:
    seen = open_page(browser, page, "iterations", color_scheme="dark")
    seen.page.get_by_label("Theme").select_option(theme)
    seen.page.emulate_media(media="print", color_scheme="dark")
    for view in listed_views(analyze_ranks()):
        seen.open(view)
        assert not seen.page.locator("nav a").first.is_visible()
        assert not seen.page.get_by_label("Theme").is_visible()
        assert seen.page.locator("main h2").first.is_visible()
        assert len(seen.text()) > 100
        assert brightness(seen) > 200, view
        assert seen.page.evaluate(CUT_OFF) == []
    seen.check()
    seen.page.context.close()


# What has more than it shows: on paper no one scrolls.
CUT_OFF = """[...document.querySelectorAll("main *")]
    .filter(one => ["auto", "scroll"].includes(getComputedStyle(one).overflowY))
    .filter(one => one.scrollHeight > one.clientHeight + 1)
    .map(one => one.className)"""


def brightness(seen: Visit) -> float:
    """Return how bright the paper is, of 255."""
    colour: Any = seen.page.evaluate(
        """() => {
            const pen = new OffscreenCanvas(1, 1).getContext("2d");
            pen.fillStyle = getComputedStyle(document.body).backgroundColor;
            pen.fillRect(0, 0, 1, 1);
            return [...pen.getImageData(0, 0, 1, 1).data];
        }"""
    )
    return sum(colour[:3]) / 3


def test_nothing_moves_for_those_who_do_not_want_it(page: Path, browser: Browser) -> None:
    moving = """[...document.querySelectorAll("*")].filter(one => {
        const look = getComputedStyle(one);
        return look.transitionDuration !== "0s" || look.animationName !== "none" || look.scrollBehavior !== "auto";
    }).length"""
    seen = open_page(browser, page, reduced_motion="reduce")
    for view in listed_views(analyze_ranks()):
        seen.open(view)
        assert seen.page.evaluate(moving) == 0, view
    seen.check()
    seen.page.context.close()
