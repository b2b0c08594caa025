"""The roofline as SVG: what is where, and that no name can do harm."""

from __future__ import annotations

import re
from math import pi
from xml.etree import ElementTree

import pytest

from deepprof.render.roofline.picture import RooflinePicture, RooflinePoint, draw_up
from deepprof.render.roofline.svg import draw_roofline_svg
from tests.deepprof.render.roofline.drawings import PEAKS, PRODUCT, SMALL, SUM, roofed

SVG = "{http://www.w3.org/2000/svg}"


def drawn(picture: RooflinePicture) -> ElementTree.Element:
    return ElementTree.fromstring(draw_roofline_svg(picture))  # noqa: S314


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [each for each in root.iter() if name in each.get("class", "").split()]


def titles(elements: list[ElementTree.Element]) -> list[str]:
    return [each.findtext(f"{SVG}title", "") for each in elements]


@pytest.fixture(scope="module")
def root() -> ElementTree.Element:
    return drawn(draw_up(roofed(PRODUCT, SUM, SMALL, (*PRODUCT[:5], None)), PEAKS, "A & B <c>", extra=[50e9]))


def test_it_says_what_it_is(root: ElementTree.Element) -> None:
    assert root.findtext(f"{SVG}title") == "A & B <c>"
    assert root.get("role") == "img"
    described = root.findtext(f"{SVG}desc", "")
    assert "Roofline of 4 points" in described
    assert "add: 59.7 % of the time, 120 µs, 8.33 GFLOP/s at 0.125 FLOP/byte, bound by memory" in described


def test_each_roof_has_its_label_and_title(root: ElementTree.Element) -> None:
    labels = ["memory 100 GB/s", "if memory had 50 GB/s", "float32 vector 1 TFLOP/s", "float16 matrix 10 TFLOP/s"]
    assert sorted(titles(of_class(root, "roof"))) == sorted(labels)
    texts = {each.text for each in root.iter(f"{SVG}text")}
    assert texts.issuperset(labels)
    assert len(of_class(root, "extra")) == 1


def test_points_have_a_form_for_their_bound(root: ElementTree.Element) -> None:
    points = [each for each in of_class(root, "point") if each.find(f"{SVG}title") is not None]
    kinds = {each.findtext(f"{SVG}title", "").split(":")[0]: each.tag.removeprefix(SVG) for each in points}
    assert kinds == {"mm": "circle", "add": "rect", "relu": "path"}
    assert len(points) == 4
    assert len([each for each in points if "hollow" in each.get("class", "")]) == 1


def test_the_area_is_the_share() -> None:
    points = tuple(RooflinePoint("p", 1.0, 1e9, share, 1.0, bound="compute") for share in (0.64, 0.16))
    large, small = (each for each in drawn(RooflinePicture("t", (), points)).iter(f"{SVG}circle") if len(each))
    areas = [pi * float(each.get("r", "0")) ** 2 for each in (large, small)]
    assert areas[0] / areas[1] == pytest.approx(4, rel=0.02)
    assert float(large.get("fill-opacity", "0")) > float(small.get("fill-opacity", "1"))


def test_bars_add_up_to_the_time(root: ElementTree.Element) -> None:
    shares = [float(text.split()[0]) for text in titles(of_class(root, "bar")) if not text.startswith("<")]
    assert sum(shares) == pytest.approx(200, abs=1)  # along both axes


def test_names_are_text_and_do_not_lie_over_each_other() -> None:
    rows = [(f'</text><script>x("{n}")\u202e\x00', *SUM[1:5], 100_000 + n) for n in range(8)]
    root = drawn(draw_up(roofed(*rows), PEAKS, "</title><script>"))
    assert not [each for each in root.iter() if each.tag.endswith("script")]
    assert "\u202e" not in draw_roofline_svg(draw_up(roofed(*rows), PEAKS, "t"))
    places = [(each.get("x"), each.get("y")) for each in root.iter(f"{SVG}text") if "script" in (each.text or "")]
    assert 1 <= len(places) == len(set(places))


def test_it_asks_for_nothing_outside() -> None:
    svg = draw_roofline_svg(draw_up(roofed(PRODUCT), PEAKS, "t"))
    assert re.findall(r"https?://[^\"' ]+", svg) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in svg
    assert "prefers-color-scheme: dark" in svg


def test_it_has_words_for_nothing() -> None:
    texts = [each.text for each in drawn(RooflinePicture("empty")).iter(f"{SVG}text")]
    assert "There is no row whose FLOP, bytes and time are known." in texts
