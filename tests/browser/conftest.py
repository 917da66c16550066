"""Chromium, and tiny trained models of every family."""

import shutil
import warnings
from pathlib import Path

import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe.explorer.page import BUILT

AXE = Path(BUILT).parent / "web/node_modules/axe-core/axe.min.js"

WHY = "needs the extra `browser`: run make browser"
SMALL = {"limit": 120, "verbose": 0}
CONVOLUTIONS = {"autoencoder": {"filters": 8}}
FAMILIES = {
    "capsules": {"capsules": 4, "epochs": 20, **CONVOLUTIONS},
    "neurons": {
        "recipe": "mixture",
        "epochs": 20,
        "experts": {"capsules": 3, "dim": 5},
        **CONVOLUTIONS,
    },
    "rbm": {"hidden": 12, "epochs": 10},
    "capsnet": {"recipe": "small", "epochs": 1, "capsnet": {"filters": 8, "types": 2}},
    "matrix-capsules": {"recipe": "small", "epochs": 1, "matrix": {"filters": 8}},
}


@pytest.fixture(scope="session")
def browser():
    """Chromium, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason=WHY)
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def digits():
    return kcp.data.load_images("digits", limit=120)


@pytest.fixture(scope="session", params=list(FAMILIES))
def family(request, browser):
    """Name of a family, and a tiny model of it."""
    with warnings.catch_warnings():
        # So short a training learns little.
        warnings.simplefilter("ignore")
        model = kcp.train("digits", model=request.param, **SMALL, **FAMILIES[request.param])
    return request.param, model


class Visit:
    """A page, with its errors and with the requests that it sent to other hosts."""

    def __init__(self, browser, url, width=1400, scheme="light"):
        view = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=view, color_scheme=scheme)
        self.page = self.context.new_page()
        self.errors, self.foreign = [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)
        self.page.goto(url)

    def overhang(self):
        """Pixels by which the page is wider than the screen."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def check_axe(self, *rules):
        """Check that axe-core, if npm has installed it, finds nothing that a person cannot use."""
        if AXE.exists():
            self.page.add_script_tag(path=str(AXE))
            run = "rules => axe.run(rules.length ? {runOnly: rules} : {}).then(f => f.violations)"
            found = self.page.evaluate(run, list(rules))
            assert [(v["id"], v["nodes"][0]["html"][:120]) for v in found] == []

    def _console(self, message):
        if message.type == "error":
            self.errors.append(message.text)

    def _request(self, request):
        own = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:", "file:")
        if not request.url.startswith(own):
            self.foreign.append(request.url)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()
        if not error[0]:
            assert not self.foreign and not self.errors, (self.foreign, self.errors)


@pytest.fixture
def visit(browser):
    return lambda url, **look: Visit(browser, url, **look)
