"""Templates of pages and model cards, in the language of Jinja, and words of tables in TOML."""

import functools
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent


def render(name, **values):
    """Return a template of this folder filled with values; HTML is escaped."""
    return _environment().get_template(name).render(values)


@functools.cache
def words(name):
    """Return the tables of a TOML file of this folder, a dict of dicts."""
    return tomllib.loads((FOLDER / name).read_text("utf-8"))


@functools.cache
def _environment():
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=lambda name: name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
