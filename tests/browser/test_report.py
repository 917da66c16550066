"""The report page in a real browser."""

import pytest

from keras_capsule_poe.evaluation.page import write_report


@pytest.fixture(scope="module")
def page(family, digits, tmp_path_factory):
    name, model = family
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_report(path, model, digits, "digits", [], facts=[("seed", 0)], summary=["Tiny."])
    return name, path.as_uri()


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_on_any_screen(page, visit, width, scheme):
    _, url = page
    with visit(url, width=width, scheme=scheme) as seen:
        seen.page.locator("h1").wait_for()
        assert seen.overhang() <= 1, "the page is wider than the screen"
        seen.check_axe()


def test_paper_has_bars_and_moved_pictures(page, visit):
    name, url = page
    with visit(url) as seen:
        seen.page.emulate_media(media="print")
        seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        for kind in (".bar", ".one", ".strip"):
            exact = "elements => elements.map(e => getComputedStyle(e).printColorAdjust)"
            assert set(seen.page.locator(kind).evaluate_all(exact)) <= {"exact"}
        strips = seen.page.locator(".strip")
        assert all(strips.nth(k).is_visible() for k in range(strips.count()))
        assert (strips.count() > 0) == (name not in ("capsnet", "matrix-capsules"))


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
