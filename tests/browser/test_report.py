"""The report page in a real browser."""

import pytest

from keras_capsule_poe.evaluation.page import write_report


@pytest.fixture(scope="module")
def page(family, digits, tmp_path_factory):
    name, model = family
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_report(path, model, digits, "digits", [], facts=[("seed", 0)])
    return name, path.as_uri()


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_on_any_screen(page, visit, width, scheme):
    _, url = page
    with visit(url, width=width, scheme=scheme) as seen:
        seen.page.locator("h1").wait_for()
        assert seen.overhang() <= 1, "the page is wider than the screen"


def test_a_slider_moves_the_picture_of_a_capsule(page, visit):
    name, url = page
    with visit(url) as seen:
        boxes = seen.page.locator(".explore")
        if name in ("capsnet", "matrix-capsules"):
            assert boxes.count() == 0
            return
        first = boxes.first
        place = "element => getComputedStyle(element).backgroundPosition"
        before = first.locator(".one").evaluate(place)
        first.locator("input").press("ArrowRight")
        moved = first.locator(".one").evaluate(place)
        first.locator("select").select_option(index=1)
        assert len({before, moved, first.locator(".one").evaluate(place)}) == 3
