"""The page of the explorer in Chromium: start, slider, bytes, drawn digits and named directions.

`ready_s`: from the address to the first picture, median of five. `slider_ms`: from a slider to its
picture, median of 100 moves. `in_view`: whether the picture is on the screen when the last named
slider is. `megabytes`: gzipped files that are loaded before the first picture. The first three are
of a screen and of a phone, 1440 and 390 pixels wide. `higher`: clicks and sliders by which a boot
gets a higher shaft, is saved, and its link opens the same picture, by mouse and by keyboard.
`digits`: of 30 drawings of each digit, one for each of 30 installed font families, of either colour
and of any size and place, those whose longest capsule is mostly of that class. `directions`: share
of capsules with at least three properties of R2 above 0.7.

Fonts of Debian: DejaVu, Liberation, FreeFont, Roboto, Lato, Open Sans, Comic Neue, Junicode, ...

Usage: python benchmarks/page.py MODEL [--digits 7] [--picture FILE] [--json FILE]
       python benchmarks/page.py MODEL --directions
(a pretrained model; `make page` was run)
"""

import argparse
import base64
import gzip
import io
import json
import shutil
import statistics
import subprocess
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import sync_playwright

import keras_capsule_poe as kcp
from keras_capsule_poe.directions import properties

DRAWINGS, PAPER, SEED = 30, 280, 0
FIRST = ("index.html", "page.js", "style.css", "model.json", "thumbs.png", "decode.onnx")
MOVES, STARTS = 100, 5
WIDTHS = {"screen": 1440, "phone": 390}


def families():
    """Paths of a font of each installed family that has digits, upright if possible, in order."""
    listed = subprocess.run(
        ["fc-list", ":charset=30-39", "family", "style", "file"], capture_output=True, check=True
    )
    found = {}
    for line in sorted(listed.stdout.decode().splitlines()):
        path, family, style = (line.split(":") + [""])[:3]
        is_plain = any(word in style for word in ("Regular", "Book", "Roman", "Medium"))
        family = family.strip().split(",")[0]
        # Pictures of keys, and initials in frames, are no plain digits.
        if any(word in family for word in ("Keyboard", "Initials")):
            continue
        if path.endswith((".ttf", ".otf")) and (is_plain or family not in found):
            found[family] = path
    random = np.random.default_rng(SEED)
    order = random.permutation(sorted(found))
    return [found[family] for family in order]


def drawings(digit):
    """PNG files in base64: a digit in many fonts, sizes and places, of either colour."""
    random, drawn = np.random.default_rng([SEED, digit]), []
    for path in families():
        font = ImageFont.truetype(path, int(random.integers(60, 200)))
        left, top, right, bottom = font.getbbox(str(digit))
        if right - left < 5 or bottom - top < 10:
            continue
        paper = 255 * int(random.integers(2))
        image = Image.new("L", (PAPER, PAPER), paper)
        x = int(random.integers(0, PAPER - (right - left)))
        y = int(random.integers(0, PAPER - (bottom - top)))
        ImageDraw.Draw(image).text((x - left, y - top), str(digit), 255 - paper, font)
        data = io.BytesIO()
        image.save(data, "PNG")
        drawn.append(base64.b64encode(data.getvalue()).decode("ascii"))
    if len(drawn) < DRAWINGS:
        raise SystemExit(f"{DRAWINGS} font families are needed. Installed: {len(drawn)}.")
    return drawn[:DRAWINGS]


def bytes_before_drawing(folder):
    files = [*(folder / name for name in FIRST), *folder.glob("ort-*")]
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) / 1e6


def opened(browser, url, width=1440):
    view = {"width": width, "height": 844}
    page = browser.new_context(viewport=view, accept_downloads=True).new_page()
    page.goto(url)
    page.wait_for_function("document.body.dataset.ready", timeout=120_000)
    return page


def on_screen(browser, url, width):
    """How fast the page is on a screen of a width in pixels, and whether the picture is seen."""
    pages = [opened(browser, url, width) for _ in range(STARTS)]
    ready = [int(page.evaluate("document.body.dataset.ready")) / 1000 for page in pages]
    page = pages[-1]
    page.locator(".direction input").last.scroll_into_view_if_needed()
    box = page.locator(".big").bounding_box()
    found = {
        "ready_s": round(statistics.median(ready), 2),
        "slider_ms": round(slider_time(page), 1),
        "in_view": box["y"] >= 0 and box["y"] + box["height"] <= 844,
    }
    for each in pages:
        each.context.close()
    return found


def picture_of(page):
    """Grey levels (H, W) of the picture of a capsule."""
    read = """canvas => {
        const {width, height} = canvas;
        const {data} = canvas.getContext('2d').getImageData(0, 0, width, height);
        return Array.from({length: height}, (_, y) => Array.from(
            {length: width}, (_, x) => data[4 * (y * width + x)]));
    }"""
    return np.array(page.locator(".big").evaluate(read)) / 255


def higher(browser, url, boot, by_keyboard, picture=None):
    """Make the shaft of a boot higher, save it and copy its link; return what that took.

    `picture` is a file for a picture of the page, or None.
    """
    page, done = opened(browser, url), {"clicks": 0, "sliders": 0}

    def press(button):
        done["clicks"] += 1
        if by_keyboard:
            button.focus()
            page.keyboard.press("Enter")
        else:
            button.click()

    press(page.locator(".gallery button").nth(boot))
    page.get_by_role("heading", name=f"Capsule {boot}").wait_for()
    page.wait_for_function("document.querySelector('.big')?.dataset.drawn")
    before = picture_of(page)
    slider = page.get_by_role("slider", name="height of capsule").first
    done["sliders"] += 1
    if by_keyboard:
        slider.focus()
        page.keyboard.press("End")
    else:
        box = slider.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2, steps=10)
        page.mouse.up()
    page.wait_for_timeout(1000)
    after = picture_of(page)
    if picture:
        page.set_viewport_size({"width": 1180, "height": 820})
        page.screenshot(path=picture)
    press(page.get_by_role("button", name="Copy link"))
    with page.expect_download() as saved:
        press(page.get_by_role("button", name="PNG", exact=True))
    other = opened(browser, page.evaluate("location.href"))
    other.wait_for_function("document.querySelector('.big')?.dataset.drawn")
    heights = [float(properties(each[None, ..., None])["height"][0]) for each in (before, after)]
    return {
        **done,
        "heights": [round(height, 2) for height in heights],
        "saved": saved.value.suggested_filename,
        "link_opens_it": bool(np.abs(picture_of(other) - after).max() < 0.01),
    }


def slider_time(page):
    """Milliseconds from an input event to the drawn picture, the median."""
    times = page.evaluate(
        """async moves => {
            const input = document.querySelector('.direction input');
            const big = document.querySelector('.big');
            const times = [];
            for (let k = 0; k < moves; k++) {
                const drawn = new Promise(resolve => {
                    new MutationObserver((_, watch) => {
                        watch.disconnect();
                        resolve(performance.now());
                    }).observe(big, {attributeFilter: ['data-drawn']});
                });
                const began = performance.now();
                input.value = String(-2 + 4 * (k % 20) / 20);
                input.dispatchEvent(new Event('input'));
                times.push(await drawn - began);
            }
            return times;
        }""",
        MOVES,
    )
    return statistics.median(times)


def count_right(page, digit):
    """Of the drawings of a digit, how many the page takes for it."""
    page.reload()
    page.get_by_role("tab", name="Draw", exact=True).click()
    page.locator(".paper").wait_for()
    draw = """async data => {
        const image = new Image();
        image.src = `data:image/png;base64,${data}`;
        await image.decode();
        const paper = document.querySelector('.paper');
        paper.getContext('2d').drawImage(image, 0, 0);
        paper.dispatchEvent(new PointerEvent('pointerup'));
    }"""
    named = []
    for number, drawing in enumerate(drawings(digit), 1):
        page.evaluate(draw, drawing)
        page.wait_for_function(
            "n => Number(document.querySelector('.paper').dataset.answered) === n",
            arg=number,
            timeout=60_000,
        )
        named.append(page.locator(".found").get_attribute("data-named").split(" ")[0])
    return named.count(str(digit))


def named_share(model):
    """Share of capsules with at least three properties of R2 above 0.7."""
    found = [model.directions(capsule) for capsule in range(model.capsules)]
    return float(np.mean([sum(each.r2 > 0.7 for each in own) >= 3 for own in found]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--digits", default="7", help="digits that are drawn, for mnist")
    parser.add_argument("--picture", type=Path, help="picture of the page, of fashion_mnist")
    parser.add_argument("--directions", action="store_true", help="measure named directions only")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    model = kcp.load(args.model)
    if args.directions:
        print({"model": args.model, "directions": named_share(model)})
        return
    images = kcp.data.load_images(args.model).test
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as driver:
        served = kcp.explore(model, images, args.model)
        static = Path(served.holder.name) / "page"
        about = json.loads((static / "model.json").read_text())
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        row = {
            "model": args.model,
            **{name: on_screen(browser, served.local_url, w) for name, w in WIDTHS.items()},
            "megabytes": round(bytes_before_drawing(static), 2),
            "directions": named_share(model),
        }
        if args.model == "mnist":
            page = opened(browser, served.local_url)
            row["digits"] = {digit: count_right(page, int(digit)) for digit in args.digits}
        if args.model == "fashion_mnist":
            boots = [k for k, each in enumerate(about["each"]) if "boot" in each["label"].lower()]
            ways = {"mouse": False, "keyboard": True}
            row["higher"] = {
                way: higher(browser, served.local_url, boots[0], by_keyboard, args.picture)
                for way, by_keyboard in ways.items()
            }
        served.close()
    print(row)
    if args.json:
        args.json.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
