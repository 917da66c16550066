"""Steps of `make docs`: formulas as MathML, tables of settings, and pictures for phones."""

import functools
import re
from pathlib import Path

from latex2mathml.converter import convert
from PIL import Image

IMAGES = Path(__file__).parent.parent / "docs/images"

# The bars of a norm are set without the spaces of an operator.
BAR = re.compile(r"<mo[^>]*>(&#x0007C;)</mo>")
# mkdocs-click shows the mark by which click knows options without a default.
NO_DEFAULT = "<code>Sentinel.UNSET</code>"
# A cell of numbers, which must stay on one line.
NUMBERS = re.compile(r"<td>([^<a-zA-Z]*\d[^<a-zA-Z]*)</td>")
PICTURE = re.compile(r'<img [^>]*src="(?!data:)([^"]*/(\S+))\.png"[^>]*>')
# Lists of pages, whose theme names them by an element that is hidden on phones.
PAGES = re.compile(
    r'(<nav class="md-nav" data-md-level="\d") aria-labelledby="\w+"'
    r"([^>]*>\s*<label[^>]*>\s*<span[^>]*></span>\s*)(\S[^<]*?)(\s*</label>)"
)
TABLE = re.compile("<table>.*?</table>", re.DOTALL)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html, **_):
    """Convert TeX formulas to MathML, which browsers show without JavaScript."""

    def formula(match):
        tex = match[3].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        display = "block" if match[2] == "[" else "inline"
        made = BAR.sub(r'<mo lspace="0" rspace="0">\1</mo>', convert(tex, display=display))
        return f'<div class="formula" tabindex="0">{made}</div>' if display == "block" else made

    def picture(match):
        if match[2] not in wide_pictures():
            return match[0]
        source = f'<source media="(max-width: 45em)" srcset="{match[1]}-narrow.png">'
        return f"<picture>{source}{match[0]}</picture>"

    html = FORMULA.sub(formula, html).replace(NO_DEFAULT, "").replace("<th></th>", "<td></td>")
    # Who has no mouse scrolls what has the focus.
    html = TABLE.sub(r'<div class="scroll" tabindex="0">\g<0></div>', html)
    return PICTURE.sub(picture, NUMBERS.sub(r'<td class="number">\1</td>', html))


def on_post_page(output, **_):
    """Name what the theme leaves without a name, for readers of screens."""
    search = 'data-md-component="search" role="dialog"'
    output = output.replace(search, f'{search} aria-label="Search"')
    return PAGES.sub(r'\1 aria-label="\3"\2\3\4', output)


@functools.cache
def wide_pictures():
    """Return the paths of pictures of about twenty columns, by name."""
    sizes = {path: Image.open(path).size for path in IMAGES.glob("*.png")}
    return {
        path.stem: path
        for path, (width, height) in sizes.items()
        if width > max(1200, 3.9 * height)
    }


def on_post_build(config, **_):
    """Write wide pictures for phones, too: the right half below the left one."""
    for name, path in wide_pictures().items():
        whole = Image.open(path).convert("RGB")
        width, height = whole.width // 2, whole.height
        narrow = whole.crop((0, 0, width, 2 * height))
        narrow.paste(whole.crop((width, 0, 2 * width, height)), (0, height))
        narrow.save(Path(config["site_dir"]) / f"images/{name}-narrow.png")


def on_page_markdown(markdown, **_):
    """Fill in the tables of presets and settings."""
    for make in (presets, settings):
        marker = f"<!-- {make.__name__} -->"
        if marker in markdown:
            markdown = markdown.replace(marker, make())
    return markdown


def presets():
    """Return a table of the presets of all models."""
    from keras_capsule_poe import registry

    lines = ["| model | preset | purpose |", "|---|---|---|"]
    for name in registry.names():
        for preset, found in registry.settings_class(name).PRESETS.items():
            lines.append(f"| `{name}` | `{preset}` | {found.text} |")
    return "\n".join(lines)


def settings():
    """Return a table of settings for each part, with the defaults of the first preset."""
    from keras_capsule_poe import registry
    from keras_capsule_poe.training.settings import meanings

    found = {}
    for name in registry.names():
        for part, values in registry.settings(name).parts.items():
            found.setdefault((part, type(values)), []).append((name, values))
    tables = []
    for (part, kind), models in found.items():
        texts = meanings(kind)
        lines = ["| setting | default | meaning |", "|---|---|---|"]
        for key in kind.model_fields:
            values = dict.fromkeys(str(getattr(each, key)) for _, each in models)
            default = ", ".join(f"`{value}`" for value in values)
            lines.append(f"| `{part}.{key}` | {default} | {texts[key]} |")
        listed = ", ".join(f"`{name}`" for name, _ in models)
        of = "all models" if part == "compute" else listed
        tables.append(f"### Part `{part}` of {of}\n\n" + "\n".join(lines))
    return "\n\n".join(tables)
