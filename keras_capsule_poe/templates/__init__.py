"""Templates of pages and model cards, in the language of Jinja."""

import functools
from pathlib import Path


def render(name, **values):
    """Return a template of this folder filled with values; HTML is escaped."""
    return _environment().get_template(name).render(values)


@functools.cache
def _environment():
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=lambda name: name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
