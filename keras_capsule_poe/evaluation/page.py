"""A self-contained HTML page of a model: tables, pictures and capsules."""

import base64
import html
import io
from pathlib import Path

from keras_capsule_poe.evaluation.page_style import STYLE
from keras_capsule_poe.evaluation.tables import cells
from keras_capsule_poe.io.files import beside
from keras_capsule_poe.io.pictures import picture

CLASSES_SHOWN = 10


def write_page(path, title, tables, pictures, capsules):
    """Write the page atomically. It needs no other file, no network and no script."""
    body = [f"<h1>{_text(title)}</h1>"]
    body += [
        _section(heading, _figure(rows, caption, heading)) for heading, caption, rows in pictures
    ]
    body += [_table(*table) for table in tables]
    if capsules:
        body.append("<h2>Capsules</h2>\n" + _contents(capsules))
    body += [_capsule(capsule) for capsule in capsules]
    with beside(path, suffix=Path(path).suffix) as temporary:
        temporary.write_text(
            _PAGE.format(title=_text(title), style=STYLE, body="\n".join(body)), "utf-8"
        )


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


def _section(heading, content):
    return f"<section>\n<h2>{_text(heading)}</h2>\n{content}\n</section>"


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


def _figure(rows, caption, name):
    """Return a grid of images as HTML, with `name` as alternative text."""
    image = picture(rows)
    data = io.BytesIO()
    image.save(data, "PNG", optimize=True)
    encoded = base64.b64encode(data.getvalue()).decode("ascii")
    width, height = image.size
    return (
        f'<figure><img alt="{_text(name)}" width="{width}" height="{height}" '
        f'src="data:image/png;base64,{encoded}">'
        + (f"<figcaption>{_text(caption)}</figcaption>" if caption else "")
        + "</figure>"
    )


def _contents(capsules):
    links = "\n".join(
        f'<li><a href="#capsule-{capsule["capsule"]}">{capsule["capsule"]}</a> '
        f"<small>{capsule['share']:.1%}</small></li>"
        for capsule in capsules
    )
    return f'<nav aria-label="Capsules"><ul>\n{links}\n</ul></nav>'


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
        f"<p>The most probable one for {capsule['share']:.1%} of the images.</p>\n"
        '<div class="sides">\n<div>\n'
        + figure("images", "Images on which it is most probable, most first", one_row)
        + figure("samples", "Samples, this capsule alone", one_row)
        + _histogram(capsule)
        + "\n</div>\n"
        + figure(
            "traversal",
            "Each dimension varied around the mean code, a row a dimension, the length kept",
            list,
        )
        + "\n</div>\n</section>"
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
        f'<table class="bars"><caption>Classes of the images it wins</caption>\n'
        f"<tbody>\n{bars}\n</tbody>\n</table>"
        + (f"\n<p>and {more} rarer ones</p>" if more > 0 else "")
    )
