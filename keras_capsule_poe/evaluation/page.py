"""HTML of the report page, with a style sheet for light and dark mode."""

import base64
import html
import io
import math
import numbers
from pathlib import Path

from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.pictures import GAP, picture

STYLE = """
:root { --ink: #1c1e21; --soft: #5d646d; --paper: #fcfcfb; --line: #d9dce0; --bar: #3a6ea5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6e9; --soft: #9aa2ac; --paper: #15171a; --line: #343940; --bar: #6ea3d8; }
}
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--paper); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; }
h1 { font-size: 1.8rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 0.75rem; }
h3 { font-size: 1.1rem; margin: 0; }
p, small, figcaption, caption { color: var(--soft); }
p { margin: 0.4rem 0; max-width: 45rem; }
.scroll { overflow-x: auto; max-width: 100%; border-inline: 1px solid transparent;
  background: linear-gradient(to right, var(--paper) 30%, transparent),
    linear-gradient(to left, var(--paper) 30%, transparent) right,
    radial-gradient(farthest-side at left, var(--soft), transparent),
    radial-gradient(farthest-side at right, var(--soft), transparent) right;
  background-repeat: no-repeat; background-size: 3rem 100%, 3rem 100%, 0.7rem 100%, 0.7rem 100%;
  background-attachment: local, local, scroll, scroll; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.9rem 0.3rem 0; border-bottom: 1px solid var(--line);
  text-align: right; white-space: nowrap; }
th { font-weight: 500; }
th[scope="row"] { text-align: left; }
thead th { color: var(--soft); }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; display: block; border-radius: 3px; }
figcaption, caption { font-size: 0.9rem; padding: 0.3rem 0; text-align: left; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1.2rem; margin: 1rem 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.grid { display: inline-grid; grid-template-columns: max-content auto; gap: 0.2rem 0.6rem; }
.grid .columns { grid-column: 2; display: flex; color: var(--soft); font-size: 0.75rem; }
.grid .columns span { flex: 1 1 0; min-width: 0; text-align: center; overflow: hidden; }
.grid .names { display: flex; flex-direction: column; color: var(--soft); font-size: 0.8rem; }
.grid .names span { flex: 1 1 0; display: flex; align-items: center; justify-content: end; }
.grid .image { grid-column: 2; }
.strip { background: var(--strip) 0 0 / 100% 100%; width: 100%; border-radius: 3px;
  image-rendering: pixelated; }
.one { background: var(--strip) no-repeat; image-rendering: pixelated; border-radius: 3px; }
.explore { display: flex; flex-wrap: wrap; gap: 0.6rem 1rem; align-items: center; }
.explore label { display: block; color: var(--soft); font-size: 0.9rem; }
.explore input { width: 12rem; max-width: 100%; accent-color: var(--bar); }
select { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--line); }
nav ul { display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; padding: 0; list-style: none; }
a { color: var(--bar); }
nav.capsules ul { gap: 0.8rem; }
nav.capsules li { text-align: center; }
nav.capsules img { image-rendering: pixelated; margin: auto; }
summary { cursor: pointer; color: var(--bar); margin: 0.6rem 0; }
.capsule { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1.5rem; }
.sides { display: flex; flex-wrap: wrap; gap: 0 2rem; }
.sides > div { flex: 1 1 22rem; min-width: 0; }
.sides > figure { flex: 0 1 20rem; }
.bars { width: 100%; max-width: 30rem; }
.bars th { color: var(--soft); }
.bars th, .bars td { border: 0; padding: 0.1rem 0.6rem 0.1rem 0; }
.bars td:last-child { width: 100%; padding-right: 0; }
.bar { display: block; height: 0.8rem; min-width: 2px; background: var(--bar); border-radius: 2px; }
"""


def cell(value):
    """Return a value as text: floats with three digits, pairs as mean ± deviation, None as -."""
    if value is None:
        return "-"
    if isinstance(value, (tuple, list)):
        mean, deviation = value
        return f"{cell(mean)} ± {cell(deviation)}"
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return _three_digits(float(value))
    return str(value)


def _three_digits(value):
    text = f"{value:#.3g}"
    # Plain digits are easier to read than a power of ten.
    if math.isfinite(value) and 1e3 <= abs(float(text)) < 1e6:
        text = f"{float(text):.0f}"
    return text.removesuffix(".")


def cells(columns, rows):
    """Return a table as a list of rows of text, header first and missing values as `-`."""
    for row in rows:
        if len(row) > len(columns) + 1:
            raise ValueError(f"A row has at most {len(columns)} values. Received: {tuple(row)}")
    padded = ((*row, *[None] * (len(columns) + 1 - len(row))) for row in rows)
    return [["", *columns], *([cell(value) for value in row] for row in padded)]


def text_table(columns, rows):
    """Return a table as aligned plain text, names to the left and values to the right."""
    table = cells(columns, rows)
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in table
    )


CLASSES_SHOWN = 10
# Magnification of the image that a slider moves.
_SCALE = 4
# Moves the picture of a capsule to the chosen dimension and step.
SCRIPT = """
for (const box of document.querySelectorAll(".explore")) {
  const [row, step] = box.querySelectorAll("select, input");
  const one = box.querySelector(".one"), { x, y, left, top } = box.dataset;
  const show = () => {
    one.style.backgroundPosition = `${-left - step.value * x}px ${-top - row.value * y}px`;
  };
  box.addEventListener("input", show);
  show();
}
"""


def write_page(path, title, tables, pictures, capsules, facts=()):
    """Write the page atomically. It needs no other file and no network.

    Args:
        path: Path of the HTML file.
        title: String.
        tables: List of (heading, note, columns, rows).
        pictures: List of (heading, caption, rows of images), maybe followed by the names of the
            rows and of the columns.
        capsules: List of dicts, see `model_page.capsule_meaning`.
        facts: List of (name, value) for the header.
    """
    headings = [*(["Capsules"] if capsules else []), *(each[0] for each in (*pictures, *tables))]
    body = [f"<h1>{_text(title)}</h1>", _facts(facts), _page_contents(headings)]
    if capsules:
        body.append(f'<h2 id="{_anchor("Capsules")}">Capsules</h2>\n' + _contents(capsules))
    body += [_capsule(capsule) for capsule in capsules]
    for heading, caption, rows, *names in pictures:
        body.append(_section(heading, _figure(rows, caption, heading, *names)))
    body += [_table(*table) for table in tables]
    if any("traversal" in capsule for capsule in capsules):
        body.append(f"<script>{SCRIPT}</script>")
    with atomic_write(path, suffix=Path(path).suffix) as temporary:
        page = _PAGE.format(title=_text(title), style=STYLE, body="\n".join(body))
        # Paths may have bytes that are no text.
        temporary.write_text(page, "utf-8", "backslashreplace")


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _text(value):
    return html.escape(str(value))


def _facts(facts):
    if not facts:
        return ""
    lines = "\n".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts)
    return f"<dl>\n{lines}\n</dl>"


def _anchor(heading):
    return "part-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in heading.lower())


def _page_contents(headings):
    if len(headings) < 2:
        return ""
    lines = "\n".join(
        f'<li><a href="#{_anchor(heading)}">{_text(heading)}</a></li>' for heading in headings
    )
    return f'<nav aria-label="Contents"><ul>\n{lines}\n</ul></nav>'


def _section(heading, content):
    anchor = _anchor(heading)
    return f'<section id="{anchor}">\n<h2>{_text(heading)}</h2>\n{content}\n</section>'


def _table(heading, note, columns, rows):
    header, *body = cells(columns, rows)
    # The corner cell is no header.
    head = "<td></td>" + "".join(f'<th scope="col">{_text(name)}</th>' for name in header[1:])
    lines = "\n".join(
        f'<tr><th scope="row">{_text(row[0])}</th>'
        + "".join(f"<td>{_text(value)}</td>" for value in row[1:])
        + "</tr>"
        for row in body
    )
    table = (
        f'<div class="scroll" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{lines}\n</tbody>\n</table></div>"
    )
    return _section(heading, table + (f"\n<p>{_text(note)}</p>" if note else ""))


def _figure(rows, caption, name, row_names=(), column_names=()):
    """Return a grid of images as HTML, with `name` as alternative text, and names beside it."""
    image = picture(rows)
    width, height = image.size
    content = f'<img alt="{_text(name)}" width="{width}" height="{height}" src="{_encoded(image)}">'
    if row_names or column_names:
        columns = "".join(f"<span>{_text(each)}</span>" for each in column_names)
        names = "".join(f"<span>{_text(each)}</span>" for each in row_names)
        content = (
            '<div class="scroll" tabindex="0"><div class="grid">'
            + (f'<div class="columns">{columns}</div>' if columns else "")
            + (f'<div class="names">{names}</div>' if names else "")
            + f'<div class="image">{content}</div></div></div>'
        )
    caption = f"<figcaption>{_text(caption)}</figcaption>" if caption else ""
    return f"<figure>{content}{caption}</figure>"


def _encoded(image):
    """Return a Pillow image as a `data:` address."""
    data = io.BytesIO()
    image.save(data, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode("ascii")


def _contents(capsules):
    links = "\n".join(
        f'<li><a href="#capsule-{capsule["capsule"]}">{_thumbnail(capsule)}'
        f"{capsule['capsule']}</a> <small>{capsule['share']:.1%}</small></li>"
        for capsule in capsules
    )
    return f'<nav class="capsules" aria-label="Capsules"><ul>\n{links}\n</ul></nav>'


def _thumbnail(capsule):
    """Return a small picture of what a capsule draws, or of an image that it wins."""
    for key in ("samples", "images"):
        if capsule.get(key) is not None and len(capsule[key]):
            image = picture([capsule[key][:1]], gap=0, magnify=1)
            return f'<img alt="" width="{2 * image.width}" src="{_encoded(image)}">'
    return ""


def _capsule(capsule):
    number = capsule["capsule"]

    def figure(key, caption, as_rows):
        images = capsule.get(key)
        shown = images is not None and len(images)
        return _figure(as_rows(images), caption, f"Capsule {number}: {caption}") if shown else ""

    def one_row(images):
        return [images]

    return (
        f'<section class="capsule" id="capsule-{number}">\n<h3>Capsule {number}</h3>\n'
        f"<p>The winning capsule of {capsule['share']:.1%} of the test images.</p>\n"
        '<div class="sides">\n<div>\n'
        + figure("images", "Test images with the highest probability of this capsule", one_row)
        + figure("samples", "Samples from this capsule alone", one_row)
        + _histogram(capsule)
        + "\n</div>\n"
        + _traversal(capsule)
        + "\n</div>\n</section>"
    )


def _traversal(capsule):
    """Return the strip of a capsule's dimensions, and a slider that moves one of them."""
    rows = capsule.get("traversal")
    if rows is None or not len(rows):
        return ""
    number, steps = capsule["capsule"], len(rows[0])
    names = capsule.get("dimensions") or range(len(rows))
    # Magnified by the browser.
    image = picture(list(rows), magnify=1)
    width, height = (_SCALE * size for size in image.size)
    gap = _SCALE * GAP
    # Pixels from one image of the strip to the next one.
    x, y = (width - gap) / steps, (height - gap) / len(rows)
    options = "".join(
        f'<option value="{row}">dimension {_text(name)}</option>' for row, name in enumerate(names)
    )
    one = f"width:{x - gap:.0f}px;height:{y - gap:.0f}px;background-size:{width}px {height}px"
    return (
        f'<figure style="--strip:url({_encoded(image)})">'
        f'<div class="explore" data-x="{x:g}" data-y="{y:g}" data-left="{gap}" data-top="{gap}">'
        f'<div class="one" role="img" aria-label="Capsule {number}, moved" style="{one}"></div>'
        f'<div><label>Move <select aria-label="dimension of capsule {number}">{options}</select>'
        f'</label><input type="range" min="0" max="{steps - 1}" value="{steps // 2}" '
        f'aria-label="value of the dimension of capsule {number}"></div></div>'
        f"<details><summary>All {len(rows)} dimensions</summary>"
        f'<div class="strip" role="img" aria-label="Dimensions of capsule {number}" '
        f'style="aspect-ratio:{width}/{height};max-width:{width // 2}px"></div>'
        "<figcaption>Each row moves one dimension of the capsule alone, around its usual code."
        "</figcaption></details></figure>"
    )


def _histogram(capsule):
    """Return bars of the most frequent classes among the images that a capsule wins."""
    counts = capsule["classes"]
    if not counts or not any(counts):
        return ""
    names = capsule.get("class_names") or range(len(counts))
    found = sorted(zip(counts, names), key=lambda pair: -pair[0])
    present = [(count, name) for count, name in found if count]
    bars = "\n".join(
        f'<tr><th scope="row">{_text(name)}</th><td>{count}</td>'
        f'<td><span class="bar" style="width:{100 * count / sum(counts):.1f}%"></span></td></tr>'
        for count, name in present[:CLASSES_SHOWN]
    )
    more = len(present) - CLASSES_SHOWN
    return (
        f'<table class="bars"><caption>Classes of the images that it wins</caption>\n'
        f"<tbody>\n{bars}\n</tbody>\n</table>"
        + (f"\n<p>and {more} rarer classes</p>" if more > 0 else "")
    )
