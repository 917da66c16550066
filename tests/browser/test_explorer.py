"""The explorer in a real browser: every control of every family, and nothing from elsewhere."""

import statistics
import time

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("gradio", reason="needs the extra `browser`: run make browser")

from keras_capsule_poe.errors import DataError
from keras_capsule_poe.explorer import explore
from keras_capsule_poe.explorer.content import Content

# Gradio and its packages warn in threads of the server.
pytestmark = pytest.mark.filterwarnings("ignore")
TABS = {
    "capsules": ["Capsules", "Image", "Blend", "Chains", "Fill in"],
    "neurons": ["Capsules", "Image", "Blend", "Neurons", "Chains", "Fill in"],
    "rbm": ["Image", "Blend", "Neurons", "Chains", "Fill in"],
    "capsnet": ["Classify"],
    "matrix-capsules": ["Classify"],
}


@pytest.fixture(scope="module")
def page(family, digits):
    name, model = family
    opened = explore(model, digits.test, inline=False)
    yield name, opened.local_url
    opened.close()


def picture(page, alt):
    return page.locator(f"img[alt='{alt}']:visible").first.get_attribute("src")


def changes(page, alt, act, within=20.0):
    """Seconds until a picture has changed after an action."""
    before, began = picture(page, alt), time.perf_counter()
    act()
    while picture(page, alt) == before:
        assert time.perf_counter() - began < within, f"{alt} stays as it was"
        time.sleep(0.005)
    return time.perf_counter() - began


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_on_any_screen(page, visit, width, scheme):
    name, url = page
    with visit(url, width=width, scheme=scheme) as seen:
        seen.page.locator("img:visible").first.wait_for()
        if width > 1000:
            tabs = set(seen.page.get_by_role("tab").all_inner_texts())
            assert tabs == set(TABS[name])
        assert seen.overhang() <= 1, "the page is wider than the screen"


def test_every_control_does_something(page, visit):
    name, url = page
    with visit(url) as seen:
        shown = seen.page
        for tab in TABS[name]:
            shown.get_by_role("tab", name=tab, exact=True).click()
            ACTIONS[tab](shown)


def use_capsules(page):
    page.locator("img[alt='moved 0']:visible").wait_for()
    changes(page, "moved 0", lambda: page.locator("button.thumbnail-item:visible").nth(1).click())
    page.get_by_role("heading", name="Capsule 1").wait_for()
    slider = page.locator("input[type=range]:visible").first
    # The keyboard is enough.
    changes(page, "moved 0", lambda: slider.press("Home"))
    changes(page, "moved 0", page.get_by_role("button", name="Random").click)
    changes(page, "moved 0", page.get_by_role("button", name="Reset", exact=True).click)
    page.get_by_text("Python lines that make this picture").click()
    page.get_by_text("import keras_capsule_poe").first.wait_for()
    for kind in ("PNG", "NPZ"):
        with page.expect_download() as download:
            page.get_by_text(f"Save {kind}").click()
        assert download.value.suggested_filename == f"capsule-1.{kind.lower()}"


def use_image(page):
    page.locator("img[alt='original']:visible").wait_for()
    slider = page.locator("input[type=range]:visible").first
    changes(page, "original", lambda: slider.press("ArrowRight"))
    assert page.locator("table.bars:visible").count()
    canvas = page.locator("canvas:visible").first
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def stroke():
        page.mouse.move(x, y - 40)
        page.mouse.down()
        page.mouse.move(x, y + 40, steps=8)
        page.mouse.up()

    changes(page, "original", stroke)


def use_blend(page):
    page.locator("img[alt='blend']:visible").wait_for()
    changes(page, "blend", lambda: page.locator("input[type=range]:visible").nth(2).press("Home"))


def use_neurons(page):
    page.locator("img[alt='filters']:visible").wait_for()


def use_chains(page):
    page.locator("img[alt='chain 0']:visible").wait_for()
    changes(page, "chain 0", page.get_by_role("button", name="10 steps").click)
    page.get_by_text("10 steps", exact=True).nth(1).wait_for()
    page.get_by_role("button", name="Start again").click()
    page.get_by_text("0 steps", exact=True).wait_for()


def use_fill(page):
    page.locator("img[alt='image 0']:visible").wait_for()
    page.get_by_role("button", name="Fill in", exact=True).click()
    page.locator("img[alt='filled in']:visible").wait_for()


def use_classes(page):
    page.locator("img[alt='image']:visible").wait_for()
    first, *others = page.locator("input[type=range]:visible").all()
    changes(page, "image", lambda: first.press("ArrowRight"))
    if others:
        others[0].press("ArrowRight")
        page.locator(".pictures img:visible").nth(2).wait_for()


ACTIONS = {
    "Capsules": use_capsules, "Image": use_image, "Blend": use_blend, "Neurons": use_neurons,
    "Chains": use_chains, "Fill in": use_fill, "Classify": use_classes,
}  # fmt: skip


def test_uploads_are_prepared_as_training_images_were(page, visit, tmp_path):
    name, url = page
    if name != "capsules":
        pytest.skip("one family is enough")
    wide = Image.new("L", (80, 30), 255)
    wide.paste(0, (36, 5, 44, 25))
    wide.save(tmp_path / "wide.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    with visit(url) as seen:
        shown = seen.page
        shown.get_by_role("tab", name="Image", exact=True).click()
        shown.locator("img[alt='original']:visible").wait_for()
        field = shown.locator("input[type=file]").first
        changes(shown, "original", lambda: field.set_input_files(tmp_path / "wide.png"))
        shown.get_by_text("Padded to a square, dark on light: inverted").wait_for()
        inverted = picture(shown, "original")
        changes(shown, "original", shown.get_by_role("radio", name="no").first.click)
        shown.get_by_text("Padded to a square", exact=True).wait_for()
        changes(shown, "original", shown.get_by_role("radio", name="auto").first.click)
        assert picture(shown, "original") == inverted
        shown.get_by_role("button", name="Remove Image").first.click()
        shown.locator("input[type=file]").first.set_input_files(tmp_path / "broken.png")
        shown.get_by_text("broken.png is broken or no image").first.wait_for()
        seen.errors.clear()


@pytest.mark.parametrize("family", ["capsules"], indirect=True)
def test_a_transparent_upload_is_what_training_would_see(family, digits, tmp_path):
    content = Content(family[1], digits.test)
    clear = Image.new("LA", (28, 28), (0, 0))
    clear.paste((0, 255), (12, 6, 16, 22))
    clear.save(tmp_path / "clear.png")
    image, notes = content.prepared(str(tmp_path / "clear.png"))
    assert notes == ("dark on light: inverted",) and image.shape == (1, 28, 28, 1)
    assert image[0, 10, 14, 0] == 1 and image[0, 0, 0, 0] == 0
    with pytest.raises(DataError, match="^gone.png cannot be read"):
        content.prepared(str(tmp_path / "gone.png"))


def test_a_slider_is_quick(page, visit):
    name, url = page
    if name != "capsules":
        pytest.skip("one family is enough")
    with visit(url) as seen:
        seen.page.locator("img[alt='moved 0']:visible").wait_for()
        slider = seen.page.locator("input[type=range]:visible").first
        times = [
            changes(seen.page, "moved 0", lambda: slider.press("ArrowRight")) for _ in range(9)
        ]
    # 150 ms on a quiet machine.
    assert statistics.median(times) < 1.0


def test_moves_of_a_code(family, digits):
    name, model = family
    if name not in ("capsules", "neurons"):
        pytest.skip("a model of single capsules")
    content = Content(model, digits.test)
    code, _ = content.usual(1)
    first, *_ = content.dimensions(1)
    moved = content.moved(code, 1, {first: 1.0})
    assert not np.array_equal(moved, code)
    others = [j for j in range(model.capsules) if j != 1]
    np.testing.assert_array_equal(moved[others], code[others])
    if name == "capsules":
        assert np.linalg.norm(moved[1]) == pytest.approx(np.linalg.norm(code[1]), rel=1e-5)
    else:
        assert moved[1, first] == pytest.approx(model.neuron_values()[1][1, first])


def test_shares_and_classes_are_those_of_the_images(family, digits):
    name, model = family
    if name != "capsules":
        pytest.skip("one family is enough")
    content = Content(model, digits.test)
    shares = [content.share(j) for j in range(model.capsules)]
    assert sum(shares) == pytest.approx(1)
    for j, share in enumerate(shares):
        classes = content.classes(j)
        assert (sum(classes.values()) == pytest.approx(1)) if share else not classes


def test_erased_pixels_are_filled_in_and_the_others_stay(family, digits):
    name, model = family
    if name != "rbm":
        pytest.skip("one family is enough")
    content = Content(model, digits.test)
    image = content.known_image(0)
    erased = np.zeros((28, 28), bool)
    erased[14:] = True
    found = content.filled(image, erased, steps=3)
    np.testing.assert_array_equal(found[:14], image[0, :14])
    assert not np.array_equal(found[14:], image[0, 14:])
