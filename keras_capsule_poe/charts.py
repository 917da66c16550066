"""Charts of coupling coefficients, and of what each layer of a classifier contributes."""

import numpy as np

from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.io.pictures import grid
from keras_capsule_poe.io.text import class_word, printable, width

FRAME = "#b0452c"
CAPTION = (
    "Framed: from the class down, what gives most (activation times coupling) to what is framed in "
    "the next layer;\nbelow couplings, its own as routing starts and after each iteration. Maps of "
    "couplings are those after the last one. Grey: out of sight."
)
# Letters of the name of a class.
_NAME = 20
_UNSEEN, _BAR = "#d4d4d4", "#6a9fcb"


def layer_maps(model, images, capsules):
    """Return the model's `layer_maps` of images and one class each, or {} if it has none."""
    if not callable(getattr(model, "layer_maps", None)):
        return {}
    return map_batches(model.layer_maps, (images, capsules))


def panels(layers):
    """Return the number of panels of `draw_layers`: one for the last layer, two for others."""
    return 2 * len(layers) - 1


def draw_layers(axes, layers, image, names):
    """Draw activations and coupling coefficients of one image, from first layer to classes."""
    titles = [name.replace("_", " ") for name in layers]
    found = [{key: each[image] for key, each in maps.items()} for maps in layers.values()]
    for n, maps in enumerate(found[:-1]):
        activation, coupling = axes[2 * n : 2 * n + 2]
        height, width, types = maps["activation"].shape
        _draw_maps(activation, maps["activation"], maps["followed"])
        activation.set_title(
            f"{titles[n]}, {types} types\nat {height}x{width}: activations", size=9
        )
        _draw_maps(coupling, maps["coupling"][-1], maps["followed"])
        coupling.set_title(f"couplings to the one\nframed in {titles[n + 1]}", size=9)
        of_framed = maps["coupling"].reshape(len(maps["coupling"]), -1)[:, maps["followed"]]
        of_framed = ", ".join(f"{r:.3f}" for r in of_framed)
        coupling.set_xlabel(f"{coupling.get_xlabel()}\nframed: {of_framed}", size=8)
    classes = found[-1]["activation"].ravel()
    colours = [_BAR] * len(classes)
    colours[found[-1]["followed"]] = FRAME
    axes[-1].bar(range(len(classes)), classes, color=colours)
    axes[-1].set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 3 else 0)
    axes[-1].set_ylim(0, 1)
    axes[-1].set_title(f"{titles[-1]}: activations", size=9)


def mosaic(maps, gap=1):
    """Return maps (h, w, I, C) side by side on white, and the corner (I, 2) of each."""
    height, width, types, channels = maps.shape
    columns = next(n for n in range(int(np.ceil(np.sqrt(types))), types + 1) if types % n == 0)
    corners = np.stack(np.divmod(np.arange(types), columns), axis=1) * (height + gap, width + gap)
    canvas = np.ones((*(corners[-1] + (height, width)), channels))
    for (top, left), each in zip(corners, np.moveaxis(maps, 2, 0)):
        canvas[top : top + height, left : left + width] = each
    return canvas, corners


def _draw_maps(panel, maps, followed):
    """Draw maps (h, w, I) as shades from minimum to maximum, one capsule framed."""
    import matplotlib
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    low, high = np.nanmin(maps), np.nanmax(maps)
    shades = np.nan_to_num((maps - low) / max(high - low, 1e-12))
    colours = matplotlib.colormaps["Blues"](shades)[..., :3]
    colours[np.isnan(maps)] = to_rgb(_UNSEEN)
    canvas, corners = mosaic(colours)
    panel.imshow(canvas, interpolation="nearest")
    row, column, kind = np.unravel_index(followed, maps.shape)
    top, left = corners[kind] + (row, column)
    frame = (left - 1, top - 1)
    panel.add_patch(Rectangle(frame, 2, 2, fill=False, edgecolor=FRAME, linewidth=2, clip_on=False))
    panel.set_xticks([])
    panel.set_yticks([])
    panel.spines[:].set_visible(False)
    panel.set_xlabel(f"white {low:.2f}, blue {high:.2f}", size=8)


BINS = 40
# Shades of the curves, from before routing to the last iteration.
_LIGHTEST, _DARKEST = 0.25, 0.95


def couplings(model, images, capsule=None):
    """Return coupling coefficients (N, T + 1, I, J) of images, and a capsule of each (N,)."""
    coefficients = map_batches(model.couplings, images)
    if capsule is not None:
        return coefficients, np.full(len(images), capsule)
    lengths = map_batches(lambda batch: model.classify(batch)["probabilities"], images)
    return coefficients, winners(lengths)


def coupling_chart(images, coefficients, capsules, titles=None, names=None, layers=None):
    """Return a figure of coupling coefficients by iteration, one or two rows per image."""
    from matplotlib.figure import Figure

    rows, iterations, _, classes = coefficients.shape
    names = [class_word(j, names, _NAME) for j in range(classes)]
    steps = ["start", *map(str, range(1, iterations))]
    ratios = [1.6, max(3.0, 0.52 * classes), 3.8]
    # Names below the panel are turned if they are long.
    names_high = 0.08 * max(map(width, names)) if max(map(len, names)) > 3 else 0
    wide, heights = 1.8 + sum(ratios), [max(2.4, 0.9 + 0.45 * iterations + names_high)]
    if layers:
        wide, heights = max(wide, 1.9 * panels(layers)), [*heights, 2.8]
    figure = Figure(figsize=(wide, sum(heights) * rows), layout="constrained")
    if layers:
        figure.supxlabel(CAPTION, size=10)
    places = iter(figure.add_gridspec(len(heights) * rows, 1, height_ratios=heights * rows))
    for r in range(rows):
        shown, means, spread = next(places).subgridspec(1, 3, width_ratios=ratios).subplots()
        _show(shown, images[r], titles[r] if titles else None)
        _mean_couplings(means, coefficients[r].mean(axis=1), capsules[r], names, steps)
        name = names[capsules[r]]
        _spread(spread, coefficients[r, :, :, capsules[r]], name, steps)
        if layers:
            draw_layers(next(places).subgridspec(1, panels(layers)).subplots(), layers, r, names)
    return figure


def _show(panel, image, title):
    pixels = grid([to_pixels(image)[None]], gap=0)
    panel.imshow(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels, cmap="gray")
    panel.set_axis_off()
    if title:
        lines = [printable(line, _NAME) for line in title.split("\n")]
        panel.set_title("\n".join(lines), fontsize=10)


def _mean_couplings(panel, means, capsule, names, steps):
    """Draw mean coefficients (T + 1, J) as shades with numbers, the chosen class framed."""
    from matplotlib.patches import Rectangle

    change = means - means[0]
    # The lower limit keeps small changes pale.
    most = max(np.abs(change).max(), 0.3 * means[0].mean())
    panel.imshow(change, cmap="RdBu", vmin=-1.3 * most, vmax=1.3 * most, aspect="auto")
    for (t, j), mean in np.ndenumerate(means):
        colour = "white" if abs(change[t, j]) > 0.8 * most else "black"
        text = f"{mean:.3f}".removeprefix("0")
        panel.text(j, t, text, ha="center", va="center", color=colour, fontsize=8)
    frame = (capsule - 0.5, -0.5)
    panel.add_patch(
        Rectangle(frame, 1, len(steps), fill=False, edgecolor=FRAME, linewidth=2, clip_on=False)
    )
    panel.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 3 else 0)
    panel.set_yticks(range(len(steps)), steps)
    panel.set_title("mean coupling to each class: blue, more than at the start", fontsize=10)
    panel.set_ylabel("iteration")


def _spread(panel, c, name, steps):
    """Draw a histogram of the coefficients (T + 1, I) to one class for each iteration."""
    import matplotlib

    low, high = float(c.min()), float(c.max())
    edges = np.linspace(low, high, BINS + 1) if high > low else np.array([low - 0.01, low + 0.01])
    shades = matplotlib.colormaps["Blues"](np.linspace(_LIGHTEST, _DARKEST, len(steps)))
    for t, (step, colour) in enumerate(zip(steps, shades)):
        counts, _ = np.histogram(c[t], edges)
        panel.stairs(counts, edges, color=colour, linewidth=1.6, label=step)
    panel.set_yscale("log")
    panel.set_ylim(bottom=0.7)
    # Close values have long tick labels.
    panel.locator_params(axis="x", nbins=4)
    panel.set_title(f"couplings of the input capsules to {name}", fontsize=10)
    panel.set_ylabel("input capsules")
    panel.legend(title="iteration", fontsize=8, title_fontsize=8)
