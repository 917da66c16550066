"""Labelled figures of generative models, for notebooks and papers."""

import functools
import io
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from keras_capsule_poe.core.arguments import (
    capsule_given,
    number_given,
    one_of,
    real_number,
    seed_given,
)
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.fonts import without_warnings
from keras_capsule_poe.io.marks import matplotlib_options
from keras_capsule_poe.io.pictures import show_names
from keras_capsule_poe.io.text import printable
from keras_capsule_poe.io.text import width as columns_of
from keras_capsule_poe.plotting import (
    chain_arrays,
    chain_start,
    moved_capsule,
    reconstruction_rows,
    row_names,
    usual_code,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Look",
    "plot_capsule",
    "plot_chains",
    "plot_filters",
    "plot_reconstructions",
    "plot_samples",
    "plot_traversal",
]

# Background, text.
THEMES = {"light": ("#ffffff", "#222222"), "dark": ("#15171a", "#e6e6e6")}
# Inches: around the cells, between blocks, between cells as a fraction of a cell.
_MARGIN, _BLOCK, _GAP = 0.12, 0.35, 0.06
_LABEL, _TITLE = 9, 11
# Inches: of a letter of the title, and of each line of it.
_LETTER, _LINE = 0.085, 0.2
# Inches of an image.
_SMALLEST, _LARGEST = 0.05, 20
# A capsule of lower probability than this does not show in an image.
ACTIVE = 0.1


class Look(TypedDict, total=False):
    """How a figure looks: keyword arguments that all `plot_` functions take.

    Attributes:
        cell: float, the width of each image in inches. Default: 0.6.
        width: float, the width of the whole figure in inches, in place of `cell`.
        columns: Integer, the most images side by side; further ones go below. Default: all. With
            10, a figure of 20 capsules fits a phone.
        theme: `"light"` or `"dark"`.
        title: Boolean, whether the figure has a title. Default: True.
        ax: matplotlib `Axes` to draw in, instead of a new figure. Its width is `width`.
    """

    cell: float
    width: float | None
    columns: int | None
    theme: str
    title: bool
    ax: Any


def _look_given(look):
    """Return a checked `Look` with its defaults."""
    defaults = {"cell": None, "width": None, "columns": None}
    defaults |= {"theme": "light", "title": True, "ax": None}
    for name in look.keys() - defaults:
        raise TypeError(f"A figure takes {', '.join(defaults)}. Received: {name}={look[name]!r}")
    look = {**defaults, **look}
    one_of("theme", look["theme"], tuple(THEMES))
    if look["columns"] is not None:
        look["columns"] = number_given("columns", look["columns"])
    if look["ax"] is not None:
        box = look["ax"].get_window_extent()
        look["width"] = box.width / look["ax"].figure.dpi
    if look["width"] is not None and look["cell"] is not None:
        raise BadUse(
            "`cell` must be left out with `width` or `ax`, which decide how wide images are. "
            f"Received: cell={look['cell']!r}"
        )
    cell = look["cell"] = 0.6 if look["cell"] is None else look["cell"]
    if not _SMALLEST <= real_number("cell", cell) <= _LARGEST:
        raise BadUse(f"`cell` must be from 0.05 to 20 inches. Received: cell={cell!r}")
    return look


def _text_as_text():
    """Context in which letters in PDF and SVG files are letters, which can be found and edited."""
    return rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"})


class LabelledFigure(Figure):
    """Figure that a notebook shows as a picture, whichever matplotlib backend is in use."""

    def draw(self, renderer):
        # Of letters that no font has, one line says so.
        with without_warnings():
            super().draw(renderer)

    def savefig(self, *args, **kwargs):
        with _text_as_text():
            super().savefig(*args, **kwargs)

    def _repr_png_(self):
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100, facecolor=self.get_facecolor())
        return buffer.getvalue()


# Pixels along the longer side of a figure that matplotlib can draw.
LARGEST = 60_000


def save_figure(path, figure, image_width=None):
    """Write a figure to a file atomically; the file ending sets the format.

    Args:
        path: Path of a file.
        figure: `LabelledFigure`, or another matplotlib figure.
        image_width: Integer, the pixels of an image in a row, to scale images by whole numbers.
    """
    dpi = 100.0
    if image_width and getattr(figure, "cell", None):
        dpi = image_width * max(1, round(100 * figure.cell / image_width)) / figure.cell
    if dpi * max(figure.get_size_inches()) > LARGEST:
        raise BadUse(
            f"A figure of {figure.get_size_inches().max():.0f} inches is too large for {path}. "
            "Ask for fewer images, or for smaller ones"
        )
    with atomic_write(path, suffix=Path(path).suffix) as temporary:
        look = {"dpi": dpi, "facecolor": figure.get_facecolor()}
        with _text_as_text():
            figure.savefig(temporary, **look, **matplotlib_options(path))


def image_figure(blocks, name=None, /, **look):
    """Return a figure of blocks of images, one below the other.

    Args:
        blocks: List of (images (R, C, H, W, ch) or nested lists with None for an empty cell,
            row labels or None, column labels or None, heading or None).
        name: String, the title above all blocks, or None.
        **look: See `Look`.
    """
    look = _look_given(look)
    paper, ink = THEMES[look["theme"]]
    blocks = [
        (images, _short(rows, 32), _short(columns, 28), heading)
        for block in blocks
        for images, rows, columns, heading in _wrapped(*block, look["columns"])
    ]
    labels = [label for _, rows, _, _ in blocks for label in rows or ()]
    left = _MARGIN + (_inches(labels) + 0.1 if labels else 0)
    cell, width, lines = _widths(blocks, name if look["title"] else None, left, look)
    sizes = [(_size(images, cell), columns, heading) for images, _, columns, heading in blocks]
    above = [_above(columns, cell) + (0.25 if heading else 0) for _, columns, heading in sizes]
    head = _MARGIN + (0.1 + _LINE * len(lines) if lines else 0)
    height = head + sum(size[1] for size, _, _ in sizes) + sum(above)
    height += _BLOCK * (len(blocks) - 1) + _MARGIN
    figure, add_axes, write = _paper(look["ax"], width, height, paper)
    if look["ax"] is None:
        figure.cell = cell
    texts = [(_MARGIN, _MARGIN, "\n".join(lines), _TITLE)] if lines else []
    top = head
    for (images, rows, columns, heading), (size, _, _), space in zip(blocks, sizes, above):
        if heading:
            texts.append((left, top, heading, _LABEL))
        top += space
        axes = add_axes(
            (left / width, 1 - (top + size[1]) / height, size[0] / width, size[1] / height)
        )
        _draw(axes, images, rows, columns, paper, ink)
        axes.tick_params(axis="x", rotation=90 if _inches(columns) > cell else 0)
        top += size[1] + _BLOCK
    for x, y, text, size in texts:
        place = {"x": x / width, "y": 1 - y / height, "ha": "left", "va": "top"}
        write(s=text, fontsize=size, color=ink, parse_math=False, **place)
    show_names(figure)
    return figure


def _wrapped(images, rows, columns, heading, most):
    """Return a block as blocks of at most `most` columns, of which the first has the heading."""
    every = max(map(len, images))
    parts = [slice(k, k + (most or every)) for k in range(0, every, most or every)]
    return [
        ([row[part] for row in images], rows, columns and columns[part], None if k else heading)
        for k, part in enumerate(parts)
    ]


def _widths(blocks, title, left, look):
    """Return the widths of an image and of the figure in inches, and the lines of the title."""
    columns = max(max(map(len, images)) for images, *_ in blocks)
    columns += _GAP * (columns - 1)
    if look["width"] is None:
        width = max(left + look["cell"] * columns, _LETTER * len(title or "") + _MARGIN) + _MARGIN
        return look["cell"], width, [title] if title else []
    width = real_number("width", look["width"])
    cell = (width - left - _MARGIN) / columns
    if not _SMALLEST <= cell <= _LARGEST:
        raise BadUse(
            "`width` must leave images of 0.05 to 20 inches. "
            f"Received: width={width:g}, which leaves {max(cell, 0):.2g}"
        )
    return cell, width, textwrap.wrap(title or "", max(1, int((width - 2 * _MARGIN) / _LETTER)))


def _paper(ax, width, height, colour):
    """Return a figure, and functions that add axes and texts to it, or to an `Axes`."""
    if ax is None:
        figure = LabelledFigure(figsize=(width, height), facecolor=colour)
        return figure, figure.add_axes, figure.text
    ax.set_axis_off()
    ax.set_box_aspect(height / width)
    return ax.figure, ax.inset_axes, functools.partial(ax.text, transform=ax.transAxes)


def _short(labels, most):
    """Return labels on one line, in at most `most` columns; None if there are none."""
    return None if labels is None else [printable(label, most) for label in labels]


def _inches(labels):
    """Return the width of the longest of some labels in inches."""
    return 0.075 * max(map(columns_of, labels or ()), default=0)


def _above(columns, cell):
    """Return the height in inches of labels above columns, which are turned if they are long."""
    if not columns:
        return 0
    return 0.1 + _inches(columns) if _inches(columns) > cell else 0.22


def _size(images, cell):
    """Return width and height in inches of a block."""
    rows, columns = len(images), max(map(len, images))
    height, width = _shape(images)[:2]
    return cell * (columns + _GAP * (columns - 1)), cell * height / width * (
        rows + _GAP * (rows - 1)
    )


def _shape(images):
    return next(image.shape for row in images for image in row if image is not None)


def _draw(axes, images, rows, columns, paper, ink):
    """Draw images, each in a rectangle of width 1, so that no pixel of a gap is needed."""
    height, width = _shape(images)[:2]
    step_x, step_y = 1 + _GAP, height / width + _GAP * height / width
    many = max(map(len, images))
    for r, row in enumerate(images):
        for c, image in enumerate(row):
            if image is None:
                continue
            pixels = np.clip(to_pixels(image), 0, 1)
            pixels = pixels if pixels.shape[-1] == 3 else pixels[..., :1].repeat(3, axis=-1)
            left, top = c * step_x, r * step_y
            extent = (left, left + 1, top + height / width, top)
            axes.imshow(pixels, extent=extent, interpolation="nearest", aspect="auto")
    axes.set_xlim(0, (many - 1) * step_x + 1)
    axes.set_ylim((len(images) - 1) * step_y + height / width, 0)
    axes.set_facecolor(paper)
    axes.spines[:].set_visible(False)
    axes.xaxis.tick_top()
    axes.set_xticks(np.arange(len(columns or ())) * step_x + 0.5, columns or ())
    axes.set_yticks(np.arange(len(rows or ())) * step_y + height / width / 2, rows or ())
    axes.tick_params(length=0, pad=3, labelsize=_LABEL, colors=ink)


def plot_samples(
    model: Any,
    n: int | None = None,
    *,
    capsule: int | None = None,
    mode: str | None = None,
    domain: str | None = None,
    seed: int = 0,
    **look: "Unpack[Look]",
) -> Any:
    """Return a figure of random images, one column per capsule if each image has one.

    Args:
        model: `GenerativeModel`.
        n: Integer, the number of images. None: four per capsule, or 40.
        capsule: Integer, show samples of this capsule only. None: of all.
        mode, domain: Strings, see `GenerativeModel.sample`.
        seed: Integer.
        **look: `cell`, `width`, `columns`, `theme`, `title` and `ax`, see `Look`.

    Returns:
        `matplotlib.figure.Figure`; `savefig("x.pdf")` or `savefig("x.svg")` saves it.

    Raises:
        BadUse: If an argument is out of range or unknown.
    """
    mode, domain = model.resolve_mode(mode, domain)
    if capsule is not None and mode != "single":
        raise BadUse(f"`capsule` must be None in mode {mode!r}. Received: capsule={capsule}")
    columns = model.modes[mode].columns if capsule is None else 10
    if n is None:
        n = 4 * columns if capsule is None and mode == "single" else 40
    n, seed = number_given("n", n), seed_given(seed)
    found = model.sample(n, seed, mode, domain, capsule)
    where = f", domain {domain}" if domain else ""
    if found.index is None or capsule is not None:
        title = f"Samples of capsule {capsule}{where}" if capsule is not None else "Samples"
        rows = [found.images[k : k + columns] for k in range(0, n, columns)]
        return image_figure([(rows, None, None, None)], title, **look)
    # Samples of a capsule below each other, in the order in which they were drawn.
    shown = [found.images[found.index == j] for j in range(model.capsules)]
    names = [str(j) for j, each in enumerate(shown) if len(each)]
    shown = [each for each in shown if len(each)]
    rows = [
        [each[r] if r < len(each) else None for each in shown] for r in range(max(map(len, shown)))
    ]
    title = f"Samples of single capsules{where}: one column per capsule"
    return image_figure([(rows, None, names, None)], title, **look)


def plot_reconstructions(model: Any, images: Any, **look: "Unpack[Look]") -> Any:
    """Return a figure of images above their reconstructions from each level of the model.

    Args:
        model: `GenerativeModel`.
        images: Array (N, H, W, C) or (N, H, W), uint8 or floats in [0, 1].
        **look: See `Look`.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        DataError: If the images have another shape, type or range.
    """
    rows = reconstruction_rows(model, some_images(images))
    columns = [str(k) for k in range(len(images))]
    title = "Images and their reconstructions"
    block = (list(rows.values()), row_names(rows), columns, None)
    return image_figure([block], title, **look)


def some_images(images):
    """Return images (N, H, W, C) as an array; raise `BadUse` if there are none."""
    images = np.asarray(images)
    if not len(images):
        raise BadUse(f"`images` must be one image or more. Received: shape {images.shape}")
    return images


def one_image(image, name="image"):
    """Return an image (H, W), (H, W, C), (1, H, W) or (1, H, W, C) with a first axis of one."""
    given = np.asarray(image)
    has_axis = given.ndim == 4 or (given.ndim == 3 and given.shape[-1] > 3)
    found = given if has_axis else given[None]
    if len(found) != 1:
        raise BadUse(f"`{name}` must be one image. Received: an array of shape {given.shape}")
    return found


def plot_traversal(
    model: Any,
    capsule: int | None = None,
    image: Any = None,
    *,
    dimensions: int = 8,
    steps: int = 9,
    span: float = 0.5,
    **look: "Unpack[Look]",
) -> Any:
    """Return a figure in which each row varies one property of a capsule's images.

    Rows with names, such as "height", move the code along its `directions`; R² says how much of
    the property the code explains. Further rows move one dimension each.

    Args:
        model: `GenerativeModel`.
        capsule: Integer. None: the most probable capsule of the image, or 0 without one.
        image: Array (H, W, C), (H, W) or (1, H, W, C), whose code is varied. None: the usual code
            of the capsule, all others zero.
        dimensions: Integer, the number of rows: named directions, the best explained first, then
            dimensions, those that change images most first.
        steps: Integer, the number of images of a row.
        span: float, the code is moved from -span to span; capsules are shorter than 1.
        **look: See `Look`.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        BadUse: If the capsule does not exist, or is not active on the image.
    """
    steps, dimensions = number_given("steps", steps, 2), number_given("dimensions", dimensions)
    if not 0 < real_number("span", span) <= 2:
        raise BadUse(f"`span` must lie in (0, 2]. Received: span={span!r}")
    if capsule is not None:
        capsule = capsule_given(capsule, model.capsules)
    what = f"Capsule {capsule or 0} alone, around its usual code"
    if image is not None:
        image = one_image(image)
        p = model.encode(image).probabilities[0]
        capsule = int(p.argmax()) if capsule is None else capsule
        _check_active(model, capsule, p)
        what = f"Capsule {capsule} of an image, probability {p[capsule]:.2f}"
    block = _moved(model, capsule, image, dimensions, steps, span)
    return image_figure([(*block, None)], what, **look)


def plot_filters(
    model: Any,
    n: int | None = None,
    *,
    capsule: int | None = None,
    **look: "Unpack[Look]",
) -> Any:
    """Return a figure of what each hidden neuron does to an image.

    A filter is the image with the neuron on minus the image with the neuron off, all other
    neurons at their usual values. Grey is no change, bright is brighter; the title says how much
    white and black are. The neurons with the largest effect come first.

    Args:
        model: `GenerativeModel` of neurons, such as `ImageBoltzmannMachine`.
        n: Integer, the number of neurons. None: at most 64.
        capsule: Integer, show the neurons of this capsule. None: of capsule 0.
        **look: See `Look`.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        BadUse: If the model has no neurons, or the capsule does not exist.
    """
    if not hasattr(model, "neuron_values"):
        raise BadUse(f"`model` must be a model of neurons. Received: {type(model).__name__}")
    capsule = capsule_given(0 if capsule is None else capsule, model.capsules)
    n = 64 if n is None else number_given("n", n)
    code, _ = usual_code(model, capsule)
    codes = np.tile(code, (2, model.dim, 1, 1))
    each = np.arange(model.dim)
    off, on = model.neuron_values()
    codes[0, each, capsule, each], codes[1, each, capsule, each] = on[capsule], off[capsule]
    with_it, without = np.split(model.decode(codes.reshape(-1, *code.shape)).images, 2)
    effect = with_it - without
    size = np.abs(effect).max(axis=(1, 2, 3))
    chosen = np.argsort(-size, kind="stable")[:n]
    most = max(size.max(), 1e-12)
    filters = 0.5 + effect[chosen] / (2 * most)
    columns = min(16, len(chosen))
    blocks = [
        ([filters[k : k + columns]], None, [str(j) for j in chosen[k : k + columns]], None)
        for k in range(0, len(chosen), columns)
    ]
    where = f" of capsule {capsule}" if model.capsules > 1 else ""
    title = f"Change of the image by each neuron{where}: black -{most:.2g}, white +{most:.2g}"
    return image_figure(blocks, title, **look)


def plot_chains(
    model: Any,
    n: int = 12,
    *,
    steps: int = 20,
    every: int | None = None,
    kind: str | None = None,
    images: Any = None,
    seed: int = 0,
    burn_in: int = 0,
    **look: "Unpack[Look]",
) -> Any:
    """Return a figure of Markov chains, one column per chain, the first state on top.

    Args:
        model: `GenerativeModel` with Markov chains.
        n: Integer, the number of chains.
        steps: Integer, the number of steps after the burn-in.
        every: Integer, show every so many steps. None: at most 8 rows.
        kind: `"gibbs"` or `"meanfield"`. None: the first kind of the model.
        images: Array (N, H, W, C), the images that chains start from. None: noise.
        seed: Integer.
        burn_in: Integer, the number of steps before the first shown state.
        **look: See `Look`.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        BadUse: If the model has no chains of this kind.
    """
    if not model.CHAINS:
        raise BadUse(f"`model` must have Markov chains. Received: {type(model).__name__}")
    n, steps, seed = number_given("n", n), number_given("steps", steps, 0), seed_given(seed)
    burn_in = number_given("burn_in", burn_in, 0)
    every = max(1, -(-steps // 7)) if every is None else number_given("every", every)
    start = chain_start(model, n, seed, None if images is None else some_images(images))
    states = chain_arrays(model, start, steps, every, kind, seed, burn_in)
    return chain_figure(states, **look)


def chain_figure(states, **look):
    """Return a figure of the `chain_arrays` of a model."""
    rows = [f"step {step}" for step in states["step"]]
    columns = [str(k) for k in range(states["images"].shape[1])]
    title = "Markov chains: one column per chain"
    return image_figure([(list(states["images"]), rows, columns, None)], title, **look)


def plot_capsule(model: Any, capsule: int, *, seed: int = 0, **look: "Unpack[Look]") -> Any:
    """Return a figure of one capsule: its samples, and its traversals around its usual code.

    Args:
        model: `GenerativeModel` with samples of single capsules.
        capsule: Integer.
        **look: See `Look`.
        seed: Integer.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        BadUse: If the capsule does not exist, or the model has no single capsules.
    """
    steps, span = 9, 0.5
    capsule, seed = capsule_given(capsule, model.capsules), seed_given(seed)
    blocks: list[Any] = []
    domains = (model.modes["single"].domains if "single" in model.modes else ()) or (None,)
    # The widest and the narrowest domain: the prior, and where training was.
    for domain in dict.fromkeys((domains[0], domains[-1])):
        samples = model.sample(2 * steps, seed, None, domain, capsule).images
        rows = [samples[:steps], samples[steps:]]
        blocks.append((rows, None, None, f"samples, domain {domain}"))
    block = _moved(model, capsule, None, 6, steps, span)
    blocks.append((*block, "its usual image, changed in one way by each row"))
    return image_figure(blocks, f"Capsule {capsule}", **look)


def _moved(model, capsule, image, dimensions, steps, span):
    """Return images (R, steps, H, W, C), row labels and column labels of a capsule that moves."""
    images, _, names = moved_capsule(model, capsule, image, dimensions, steps, span)
    return images, names, span_labels(span, steps)


def span_labels(span, steps):
    """Return the labels of the columns of a traversal."""
    return [f"{value:+.3g}" for value in np.linspace(-span, span, steps)]


def _check_active(model, capsule, probabilities):
    """Raise `BadUse` unless a capsule is active."""
    if model.capsules > 1 and probabilities[capsule] < ACTIVE:
        active = np.argsort(-probabilities)[:3]
        listed = ", ".join(f"{j} ({probabilities[j]:.2f})" for j in active)
        raise BadUse(
            f"`capsule` must be active on the image. Received: capsule={capsule}, whose "
            f"probability is {probabilities[capsule]:.2g}. The most probable capsules are {listed}."
        )
