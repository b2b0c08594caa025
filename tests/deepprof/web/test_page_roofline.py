"""The roofline on the page."""

from __future__ import annotations

from tests.browsing import Visit


def test_points_are_chosen_in_the_picture_and_in_the_table(seen: Visit) -> None:
    seen.open("roofline")
    page = seen.page
    assert page.locator(".roof-point").count() == 1  # the other group's operations are unknown
    assert page.locator(".roof text").all_text_contents() == [
        "memory 100 GB/s",
        "float32 vector 1 TFLOP/s",
        "float16 matrix 10 TFLOP/s",
    ]
    rows = page.locator("table tbody tr")
    assert rows.count() == 2
    page.locator(".roof-point").click()
    assert "aten::mm" in page.locator("tr[aria-current=true]").inner_text()
    rows.nth(1).locator("button").click()
    assert "custom" in page.locator("tr[aria-current=true]").inner_text()
    assert page.locator(".roof-point.chosen").count() == 0


def test_the_first_part_of_the_time(seen: Visit) -> None:
    seen.open("roofline")
    slider = seen.page.locator("input[type=range]")
    slider.fill("50")
    assert seen.page.locator("table tbody tr").count() == 1
    slider.fill("100")
    assert seen.page.locator("table tbody tr").count() == 2
