"""Pictures and bars of the explorer as HTML, and files to download."""

import base64
import html
import io
import tempfile
from pathlib import Path

import numpy as np

from keras_capsule_poe.io.pictures import picture

# Widths in pixels of a picture that sliders move, and of one among many.
LARGE, SMALL = 224, 56
STYLE = """
.pictures { display: flex; flex-wrap: wrap; gap: 6px; }
.pictures figure { margin: 0; }
.pictures img { image-rendering: pixelated; border-radius: 3px; display: block; }
.pictures figcaption { font-size: 0.75rem; text-align: center; opacity: 0.8; }
.bars { width: 100%; max-width: 26rem; border-collapse: collapse; font-size: 0.85rem;
  border: 0 !important; }
.bars tr, .bars td { padding: 1px 8px 1px 0; border: 0 !important; background: none !important; }
.bars td:last-child { width: 60%; }
.gallery .grid-wrap { height: auto !important; max-height: none !important; }
.gallery .grid-container {
  grid-template-columns: repeat(auto-fill, minmax(76px, 1fr)) !important; }
.bar { background: #3a6ea5; height: 0.7rem; border-radius: 2px; min-width: 1px; }
"""


def encoded(image):
    """Return an image (H, W, C), pixels in [0, 1], as a `data:` address."""
    data = io.BytesIO()
    picture([np.asarray(image)[None]], gap=0, magnify=1).save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode("ascii")


def shown(images, names=(), width=SMALL, alt="image"):
    """Return HTML of images side by side, each with its name below."""
    figures = []
    for number, image in enumerate(images):
        name = html.escape(str(names[number])) if number < len(names) else ""
        words = name or f"{alt} {number}"
        caption = f"<figcaption>{name}</figcaption>" if name else ""
        figures.append(
            f'<figure><img alt="{words}" width="{width}" src="{encoded(image)}">{caption}</figure>'
        )
    return f'<div class="pictures">{"".join(figures)}</div>'


def bars(values, most=8):
    """Return HTML of bars of the largest shares, a dict."""
    largest = sorted(values.items(), key=lambda pair: -pair[1])[:most]
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{value:.2f}</td>"
        f'<td><div class="bar" style="width:{100 * min(value, 1):.0f}%"></div></td></tr>'
        for name, value in largest
    )
    return f'<table class="bars"><tbody>{rows}</tbody></table>'


def heat(maps, width=112):
    """Return HTML of maps (h, w) by name, each from dark (least) to bright (most)."""
    scaled = [((m - m.min()) / max(m.max() - m.min(), 1e-12))[..., None] for m in maps.values()]
    return shown(scaled, list(maps), width)


def to_bytes(image):
    """Return an image (H, W, C), pixels in [0, 1], as RGB bytes, magnified."""
    return np.asarray(picture([np.asarray(image)[None]], gap=0).convert("RGB"))


def saved(name, write):
    """Return the path of a temporary file with this name that `write` has written."""
    path = Path(tempfile.mkdtemp(prefix="capspoe-")) / name
    write(path)
    return str(path)


def save_png_of(path, image):
    """Write an image (H, W, C) to a PNG file, eight times as large."""
    picture([np.asarray(image)[None]], gap=0, magnify=8).save(path)


def blank(size):
    """Return a black canvas."""
    return np.zeros((size, size, 3), "uint8")
