"""Griffe extension of `make docs`: examples in docstrings become blocks of code."""

import re

from griffe import Extension

# Lines from one that starts with >>> to the next empty line.
SESSION = re.compile(r"^( *)(>>> .*?)(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"^(Examples?|References?):(?=\n\n)", re.MULTILINE)


class Examples(Extension):
    """Fence doctest sessions, and show the titles above examples and references in bold."""

    def on_object(self, *, obj, **_):
        if obj.docstring and not obj.is_alias:
            text = TITLE.sub(r"**\1**", obj.docstring.value)
            obj.docstring.value = SESSION.sub(r"\1```pycon\n\g<0>\n\1```", text)
