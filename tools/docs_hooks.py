"""Steps of `make docs`: formulas as MathML, and the tables of presets and settings."""

import dataclasses
import re
from pathlib import Path

from latex2mathml.converter import convert

# The bars of a norm are set without the spaces of an operator.
BAR = re.compile(r"<mo[^>]*>(&#x0007C;)</mo>")
# mkdocs-click shows the mark by which click knows options without a default.
NO_DEFAULT = "<code>Sentinel.UNSET</code>"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
MEANINGS = Path(__file__).parents[1] / "docs" / "reference" / "settings.toml"


def on_page_content(html, **_):
    """Convert TeX formulas to MathML, which browsers show without JavaScript."""

    def formula(match):
        tex = match[3].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        display = "block" if match[2] == "[" else "inline"
        return BAR.sub(r'<mo lspace="0" rspace="0">\1</mo>', convert(tex, display=display))

    return FORMULA.sub(formula, html).replace(NO_DEFAULT, "")


def on_page_markdown(markdown, **_):
    """Fill in the tables of presets and settings."""
    for make in (presets, settings):
        marker = f"<!-- {make.__name__} -->"
        if marker in markdown:
            markdown = markdown.replace(marker, make())
    return markdown


def presets():
    """Return a table of the presets of all model families."""
    from keras_capsule_poe.families import get, names

    lines = ["| model | preset | purpose |", "|---|---|---|"]
    for name in names():
        for preset, recipe in get(name).recipes.items():
            lines.append(f"| `{name}` | `{preset}` | {recipe.text} |")
    return "\n".join(lines)


def settings():
    """Return a table of settings for each section, with the defaults of the first preset."""
    from keras_capsule_poe.families import get, names
    from keras_capsule_poe.training import RunConfig
    from keras_capsule_poe.training.config import read_toml

    meanings = read_toml(MEANINGS)
    found = {}
    for name in names():
        config = RunConfig(get(name))
        for section, kind in get(name).sections.items():
            found.setdefault((section, kind), []).append((name, config[section]))
    parts = []
    for (section, kind), models in found.items():
        lines = ["| setting | default | meaning |", "|---|---|---|"]
        for field in dataclasses.fields(kind):
            values = dict.fromkeys(str(getattr(each, field.name)) for _, each in models)
            default = ", ".join(f"`{value}`" for value in values)
            lines.append(f"| `{section}.{field.name}` | {default} | {meanings[field.name]} |")
        listed = ", ".join(f"`{name}`" for name, _ in models)
        parts.append(f"### Section `{section}` of {listed}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)
