"""The page of the explorer in Chromium: start, slider, bytes, and drawn sevens.

`ready_s`: from the address to the first picture. `slider_ms`: from a slider to its picture, median
of 100 moves. `megabytes`: gzipped files that are loaded before the first picture. `sevens`: of 30
sevens in fonts of matplotlib, of either colour and many sizes and places, those whose longest
capsule is mostly of the class 7. `directions`: share of capsules with at least three properties of
R2 above 0.7.

Usage: python benchmarks/page.py MODEL [--json FILE]   (a pretrained model; `make page` was run)
"""

import argparse
import base64
import gzip
import io
import json
import shutil
import statistics
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import sync_playwright

import keras_capsule_poe as kcp

SEVENS = 30
FIRST = ("index.html", "page.js", "style.css", "model.json", "thumbs.png", "decode.onnx")
MOVES = 100


def sevens():
    """PNG files in base64: sevens of many fonts, sizes and places, of either colour."""
    random = np.random.default_rng(0)
    folder = Path(matplotlib.get_data_path()) / "fonts/ttf"
    drawn = []
    # Fonts of symbols have no seven, so some fonts give two.
    for path in 2 * sorted(folder.glob("*.ttf")):
        size = int(random.integers(60, 200))
        font = ImageFont.truetype(str(path), size)
        left, top, right, bottom = font.getbbox("7")
        if right - left < 5 or bottom - top < 10:
            continue
        is_dark = bool(random.integers(2))
        image = Image.new("L", (280, 280), 255 if is_dark else 0)
        x = int(random.integers(0, 280 - (right - left)))
        y = int(random.integers(0, 280 - (bottom - top)))
        ImageDraw.Draw(image).text((x - left, y - top), "7", 0 if is_dark else 255, font)
        if np.ptp(np.asarray(image)) < 200:
            continue
        data = io.BytesIO()
        image.save(data, "PNG")
        drawn.append(base64.b64encode(data.getvalue()).decode("ascii"))
    return drawn[:SEVENS]


def bytes_before_drawing(folder):
    files = [*(folder / name for name in FIRST), *folder.glob("ort-*")]
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) / 1e6


def opened(browser, url):
    page = browser.new_context().new_page()
    page.goto(url)
    page.wait_for_function("document.body.dataset.ready", timeout=120_000)
    return page


def slider_time(page):
    """Milliseconds from an input event to the drawn picture, the median."""
    times = page.evaluate(
        """async moves => {
            const input = document.querySelector('.direction input');
            const big = document.querySelector('.big');
            const times = [];
            for (let k = 0; k < moves; k++) {
                const before = big.dataset.drawn;
                const began = performance.now();
                input.value = String(-2 + 4 * (k % 20) / 20);
                input.dispatchEvent(new Event('input'));
                while (big.dataset.drawn === before) await new Promise(r => setTimeout(r, 0));
                times.push(performance.now() - began);
            }
            return times;
        }""",
        MOVES,
    )
    return statistics.median(times)


def count_sevens(page):
    page.get_by_role("tab", name="Draw", exact=True).click()
    page.locator(".paper").wait_for()
    right = 0
    draw = """async data => {
        const image = new Image();
        image.src = `data:image/png;base64,${data}`;
        await image.decode();
        const paper = document.querySelector('.paper');
        paper.getContext('2d').drawImage(image, 0, 0);
        paper.dispatchEvent(new PointerEvent('pointerup'));
    }"""
    for number, drawing in enumerate(sevens(), 1):
        page.evaluate(draw, drawing)
        page.wait_for_function(
            "n => Number(document.querySelector('.paper').dataset.answered) === n",
            arg=number,
            timeout=60_000,
        )
        right += page.locator(".found").get_attribute("data-named").startswith("7")
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    images = kcp.data.load_images(args.model).test
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as driver:
        served = kcp.explore(kcp.load(args.model), images, args.model)
        static = Path(served.holder.name) / "page"
        about = json.loads((static / "model.json").read_text())
        known = [sum(d["r2"] > 0.7 for d in each["directions"]) >= 3 for each in about["each"]]
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        pages = [opened(browser, served.local_url) for _ in range(5)]
        ready = [int(page.evaluate("document.body.dataset.ready")) / 1000 for page in pages]
        row = {
            "model": args.model,
            "ready_s": round(statistics.median(ready), 2),
            "slider_ms": round(slider_time(pages[-1]), 1),
            "megabytes": round(bytes_before_drawing(static), 2),
            "directions": float(np.mean(known)),
        }
        if args.model == "mnist":
            row["sevens"] = count_sevens(pages[-1])
        served.close()
    print(row)
    if args.json:
        args.json.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
