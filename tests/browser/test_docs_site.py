"""Every page of the documentation in a real browser, as `make docs` built it in build/site.

Rejected: what axe-core finds, in light and dark colours, pages that are wider than a phone, and
requests to other hosts.
"""

import functools
import http.server
import os
import threading
from pathlib import Path

import pytest

SITE = Path(os.environ.get("DOCS_SITE", Path(__file__).resolve().parents[2] / "build/site"))
PAGES = sorted(
    str(path.relative_to(SITE))
    for path in SITE.rglob("*.html")
    # Pages of models are tested on their own.
    if path.name != "404.html" and path.relative_to(SITE).parts[0] not in ("play", "assets")
)
pytestmark = pytest.mark.skipif(not PAGES, reason="needs make docs")


@pytest.fixture(scope="module")
def address():
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_faults(page, address, visit):
    with visit(f"{address}/{page}", width=390, scheme="dark") as seen:
        seen.page.locator("h1").first.wait_for()
        assert seen.overhang() <= 1, "the page is wider than the screen"
        seen.check_axe()
        # What else axe-core looks at does not depend on colours, which must not fade.
        seen.page.add_style_tag(content="* { transition: none !important }")
        seen.page.evaluate("document.body.dataset.mdColorScheme = 'default'")
        seen.check_axe("color-contrast")
