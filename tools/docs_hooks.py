"""Steps of `make docs`: formulas as MathML, and the tables of presets and settings."""

import re

from latex2mathml.converter import convert

# The bars of a norm are set without the spaces of an operator.
BAR = re.compile(r"<mo[^>]*>(&#x0007C;)</mo>")
# mkdocs-click shows the mark by which click knows options without a default.
NO_DEFAULT = "<code>Sentinel.UNSET</code>"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


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
