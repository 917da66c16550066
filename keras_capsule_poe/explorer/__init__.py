"""A page to play with a trained model, in a browser on this machine, built with Gradio."""

import os
import threading
from typing import Any

from keras_capsule_poe import templates
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.explorer import tabs
from keras_capsule_poe.explorer.content import Content

__all__ = ["explore"]

HOST = "127.0.0.1"
# The largest file that can be uploaded.
UPLOAD = "50mb"
# Nothing is sent anywhere, and nothing is loaded from elsewhere.
OFFLINE = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "GRADIO_SSR_MODE": "False",
}


def explore(model: Any, images: Any = None, name: str = "MODEL", **options: Any) -> Any:
    """Open a page to play with a trained model, in a browser on this machine.

    The page shows what each capsule draws, moves its dimensions by sliders, and encodes images
    that you draw or upload. It is reachable from this machine alone, and loads nothing from other
    hosts.

    Args:
        model: A trained model of any family.
        images: Images that the page shows: array (N, H, W, C) or (N, H, W), uint8 or floats in
            [0, 1]; or what `load_images` returns, or its `test`. None: the page shows generated
            images only.
        name: String, the folder or name of the model, for the Python lines that the page shows.
        **options: Arguments of `gradio.Blocks.launch`, such as `server_port=7861` or
            `inbrowser=True`.

    Returns:
        `gradio.Blocks`; `close()` ends it. As the last line of a notebook's cell it shows the page
        and no text.

    Raises:
        BadUse: If Gradio is not installed, or the model cannot be explored.
        DataError: If the images are not of the model's shape, or out of range.

    Example:

    >>> import keras_capsule_poe as kcp
    >>> page = kcp.explore(kcp.load("mnist"))  # doctest: +SKIP
    """
    content = Content(model, images, name)
    page = build(content)
    # The page is ready before all images are encoded.
    threading.Thread(target=lambda: content.winner, daemon=True).start()
    given = {"quiet": True, "inline": True, "prevent_thread_lock": True}
    options = {**given, "max_file_size": UPLOAD, **options}
    page.launch(server_name=HOST, share=False, **options, **page.look)
    return page


def gradio():
    """Import Gradio without telemetry; raise `BadUse` if it is not installed."""
    os.environ.update(OFFLINE)
    try:
        import gradio
    except ImportError as error:
        raise BadUse(
            "The explorer needs Gradio. Install it: pip install 'keras-capsule-poe[explore]'"
        ) from error
    return gradio


def page_class(gr):
    """Return a class of `gradio.Blocks` without a text in a notebook, where `launch` shows it."""

    class Page(gr.Blocks):
        def __repr__(self):
            return f"Explorer at {getattr(self, 'local_url', None) or 'no address yet'}"

        def _ipython_display_(self):
            """The launch has shown the page below the cell."""

    return Page


def build(content):
    """Return the page as `gradio.Blocks`; `look` has the arguments of its `launch`."""
    gr = gradio()
    model = content.model
    if not (content.generates or content.classifies):
        raise BadUse(f"`model` must generate or classify. Received: {type(model).__name__}")
    with page_class(gr)(title=f"Explorer: {model.TITLE}", analytics_enabled=False) as page:
        gr.Markdown(f"# {model.TITLE}\n{content.summary()}")
        if content.has_single:
            tabs.capsules_tab(gr, content)
        if content.generates:
            tabs.image_tab(gr, content)
        if content.generates and content.images is not None:
            tabs.blend_tab(gr, content)
        if content.classifies:
            tabs.classifier_tab(gr, content)
        if content.is_neurons:
            tabs.filters_tab(gr, content)
        if content.chains:
            tabs.chains_tab(gr, content)
            tabs.fill_tab(gr, content)
    theme = gr.themes.Base(
        font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
    )
    css = templates.render("explorer.css")
    page.look = {"theme": theme, "css": css, "footer_links": [], "run_history": False}
    return page
