"""The page of every model in a real browser: views, sliders, links, drawings, and one host alone.

Rejected: pictures that differ from the model's, an address that shows another picture, a slider
without a name, answers to other hosts, and a folder of somebody's files that is replaced.
"""

import http.client
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import read_image
from keras_capsule_poe.directions import alone
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.explorer import explore
from keras_capsule_poe.explorer.page import BUILT, check_folder

pytestmark = pytest.mark.skipif(not (BUILT / "page.js").exists(), reason="needs make page")
VIEWS = {
    "capsules": ["Play", "Draw", "Mix", "Morph", "Routing", "Map", "Film"],
    "neurons": ["Play", "Draw", "Mix", "Morph", "Map", "Film"],
    "rbm": ["Draw", "Morph", "Map", "Film"],
    "capsnet": ["Play", "Draw", "Routing"],
    "matrix-capsules": ["Draw"],
}


@pytest.fixture(scope="module")
def opened(family, digits):
    name, model = family
    page = explore(model, digits.test)
    yield name, model, page.local_url
    page.close()


def ready(seen):
    seen.page.wait_for_function("document.body.dataset.ready", timeout=60_000)
    return seen.page


def pixels(page, selector):
    """Red values of a canvas, in [0, 1]."""
    read = """element => {
        const {width, height} = element;
        const {data} = element.getContext('2d').getImageData(0, 0, width, height);
        return Array.from({length: width * height}, (_, k) => data[4 * k]);
    }"""
    return np.array(page.locator(selector).first.evaluate(read)) / 255


def changed(page, selector, before, what):
    """Wait until a canvas has changed, and return it."""
    for _ in range(200):
        now = pixels(page, selector)
        if np.abs(now - before).max() > 1 / 300:  # one grey level
            return now
        page.wait_for_timeout(50)
    raise AssertionError(f"{what} changes nothing")


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_opens_on_any_screen(opened, visit, width, scheme):
    name, _, url = opened
    with visit(url, width=width, scheme=scheme) as seen:
        page = ready(seen)
        assert page.get_by_role("tab").all_inner_texts() == VIEWS[name]
        for view in VIEWS[name]:
            page.get_by_role("tab", name=view, exact=True).click()
            page.locator(f"[role=tab][aria-selected=true]:has-text('{view}')").wait_for()
            page.locator("main canvas").first.wait_for()
            assert seen.overhang() <= 1, f"{view} is wider than the screen"
            assert page.locator("#status").inner_text() == ""
            page.wait_for_timeout(300)
            seen.check_axe()


def test_a_slider_a_link_and_files(opened, visit):
    name, model, url = opened
    if "Play" not in VIEWS[name]:
        pytest.skip("nothing to move")
    with visit(url) as seen:
        page = ready(seen)
        page.locator(".gallery button").nth(1).click()
        page.get_by_role("heading", name="Capsule 1").wait_for()
        page.wait_for_function("document.querySelector('.big')?.dataset.drawn")
        start = pixels(page, ".big")
        page.locator("summary").first.click()
        slider = page.locator("details input[type=range]").first
        # The keyboard is enough.
        slider.press("End")
        moved = changed(page, ".big", start, "a slider")
        address = page.evaluate("location.href")
        for kind in ("PNG", "GIF"):
            with page.expect_download() as download:
                page.get_by_role("button", name=kind, exact=True).click()
            assert download.value.suggested_filename.endswith(f".{kind.lower()}")
            assert Path(download.value.path()).stat().st_size > 100
        page.get_by_role("button", name="Reset").click()
        np.testing.assert_allclose(changed(page, ".big", moved, "reset"), start, atol=0.01)
    with visit(address) as seen:
        page = ready(seen)
        np.testing.assert_allclose(pixels(page, ".big"), moved, atol=0.01)


def test_pictures_are_those_of_the_model(opened, visit):
    name, model, url = opened
    if name != "capsules":
        pytest.skip("one model is enough")
    with visit(url) as seen:
        page = ready(seen)
        shown = pixels(page, ".big")
        start = page.evaluate("fetch('model.json').then(r => r.json()).then(m => m.each[0].start)")
    wanted = model.decode(alone(np.array([start], "float32"), model.capsules, 0)).images
    # Weights of eight bits.
    np.testing.assert_allclose(shown, wanted.ravel(), atol=0.06)


def test_a_drawing_gets_an_answer(opened, visit):
    _, _, url = opened
    with visit(f"{url}#view=draw") as seen:
        page = ready(seen)
        box = page.locator(".paper").bounding_box()
        x, y = box["x"] + 140, box["y"] + 60
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x - 10, y + 150, steps=8)
        page.mouse.up()
        page.locator(".found table.bars tr").first.wait_for()
        assert page.locator(".found").get_attribute("data-winner").isdigit()


def test_two_models_see_one_drawing(family, digits, visit):
    name, model = family
    if name != "rbm":
        pytest.skip("one model is enough")
    page = explore(model, digits.test, "first", beside=(model, None, "second"))
    try:
        with visit(f"{page.local_url}#view=draw") as seen:
            shown = ready(seen)
            box = shown.locator(".paper").bounding_box()
            shown.mouse.move(box["x"] + 140, box["y"] + 60)
            shown.mouse.down()
            shown.mouse.move(box["x"] + 130, box["y"] + 200, steps=8)
            shown.mouse.up()
            shown.wait_for_function("document.querySelectorAll('.found table.bars').length === 2")
            for text in shown.locator(".found").all_inner_texts():
                assert "Hidden units that are on" in text
            for other, here in (("second", "first"), ("first", "second")):
                shown.get_by_role("link", name=f"Show {other} in place of {here}").click()
                shown.get_by_role("link", name=f"Show {here} in place of {other}").wait_for()
                ready(seen)
                assert ("Map" in shown.get_by_role("tab").all_inner_texts()) == (other == "first")
            seen.check_axe()
    finally:
        page.close()


@pytest.mark.parametrize("mode", ["L", "LA"])
def test_a_file_is_prepared_as_training_images_were(opened, visit, tmp_path, mode):
    name, model, url = opened
    if name != "capsules":
        pytest.skip("one model is enough")
    image = Image.new("L", (28, 28), 0)
    image.paste(200, (6, 4, 16, 22))
    if mode == "LA":
        image = Image.merge("LA", (image, image.point(lambda value: 255 * (value > 0))))
    image.save(tmp_path / "one.png")
    with visit(f"{url}#view=draw") as seen:
        page = ready(seen)
        page.locator("input[type=file]").set_input_files(tmp_path / "one.png")
        page.wait_for_function("document.querySelector('.paper').dataset.answered")
        shown = pixels(page, ".pair canvas")
    wanted = read_image(tmp_path / "one.png", model) / 255
    np.testing.assert_allclose(shown, wanted.ravel(), atol=1 / 255)


def ask(url, path="/", **headers):
    host = url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request("GET", path, headers=headers)
    return connection.getresponse().status


def test_only_this_machine_is_answered_and_only_files_are_served(opened):
    *_, url = opened
    assert ask(url) == 200
    assert ask(url, Host="evil.example:80") == 403
    for path in ("/../../../etc/passwd", "/..%2f..%2f..%2fetc/passwd", "/nothing"):
        assert ask(url, path) in (403, 404), path


def test_other_files_are_never_replaced(tmp_path, family, digits):
    name, model = family
    if name != "rbm":
        pytest.skip("one model is enough")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(BadUse, match="which holds other files"):
        explore(model, digits.test, static=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    made = explore(model, digits.test, static=tmp_path / "new/page")
    check_folder(made)
    assert (made / "index.html").exists()
