"""Rows of images, and charts of coupling coefficients and of the path to a class."""

import numpy as np

from keras_capsule_poe.core.routing import longest, winners
from keras_capsule_poe.data.mapping import CHUNK, map_batches, to_pixels
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.io.pictures import grid
from keras_capsule_poe.sampling import render

# Names of the rows of reconstructions.
NAMES = {
    "original": "original",
    "whole_code": "whole code",
    "one_capsule": "longest capsule",
    "routing_off": "uniform routing",
    "divergence_step": "one mean-field step",
}


def sample_rows(model, rows, seed, mode=None, domain=None, capsule=None, columns=None):
    """Return a list of `rows` arrays (columns, H, W, C) of samples, of all capsules or of one."""
    mode, domain = model.resolve_mode(mode, domain)
    drawn = model.sample(rows * (columns or model.modes[mode].columns), seed, mode, domain, capsule)
    images = np.split(drawn.images, rows)
    if drawn.index is None or capsule is not None:
        return images
    # Sort each row by capsule, so that a column shows one capsule.
    index = np.split(drawn.index, rows)
    return [row[np.argsort(of, kind="stable")] for row, of in zip(images, index)]


def reconstruction_rows(model, images):
    """Return `original` and the model's reconstructions that are images, each (N, H, W, C)."""

    def rows(batch):
        found = model.reconstructions(batch)
        view = getattr(model, "view", None)
        seen = batch if view is None else view(batch)
        shown = {name: x for name, (x, of) in found.items() if x.shape[1:] == seen.shape[1:]}
        return {"original": seen, **shown}

    # Tracing a graph takes longer than running a few images eagerly.
    if len(images) <= CHUNK:
        return {name: np.asarray(x) for name, x in rows(to_pixels(images)).items()}
    return map_batches(rows, images)


def image_traversal(model, image, capsule=None, steps=11, span=0.5, rows=32):
    """Return traversals (steps, H, W, C) of an image's capsule, the capsule, its dimensions."""
    code = map_batches(model.encode, image)
    if capsule is None:
        capsule = int(winners(code["probabilities"])[0])
    code, dimensions = code["capsules"][0], list(range(model.dim))
    if len(dimensions) > rows:
        # Keep the dimensions that change the image most between their ends.
        ends = traversal(code, capsule, dimensions, 2, span, model.CODES)
        ends = render(model, ends.reshape(-1, *code.shape)).reshape(len(ends), 2, -1)
        change = np.square(ends[:, 1] - ends[:, 0]).sum(axis=-1)
        dimensions = np.argsort(-change, kind="stable")[:rows].tolist()
    codes = traversal(code, capsule, dimensions, steps, span, model.CODES)
    images = render(model, np.concatenate(codes))
    return np.split(images, len(codes)), capsule, dimensions


def traversal(code, capsule, dimensions, steps, span, inside="ball"):
    """Return codes (R, steps, J, E) that vary R dimensions of one capsule of `code` (J, E)."""
    codes = np.tile(code, (len(dimensions), steps, 1, 1))
    for row, dimension in zip(codes, dimensions):
        row[:, capsule, dimension] += np.linspace(-span, span, steps, dtype="float32")
    if inside == "alone":
        return codes * (np.arange(len(code)) == capsule)[:, None].astype(codes.dtype)
    if inside == "cube":
        return np.clip(codes, 0, 1)
    # In a ball the capsule turns and keeps its length, the probability that it is on.
    # A capsule of one dimension cannot turn, so its length only stays below one.
    lengths = np.linalg.norm(codes[:, :, capsule], axis=-1, keepdims=True)
    kept = np.minimum(lengths, 0.999) if codes.shape[-1] == 1 else np.linalg.norm(code[capsule])
    codes[:, :, capsule] *= kept / np.maximum(lengths, 1e-12)
    return codes


def parts(model, images, n=2, labels=None):
    """Return classes (N, T) and decoded images (N, T, H, W, C) of the `n` longest capsules."""
    code = map_batches(model.encode, images)
    capsules, lengths = code["capsules"], code["probabilities"]
    if n > lengths.shape[1]:
        raise BadUse(f"There are {lengths.shape[1]} capsules to be decoded. Received: n={n}")
    classes = longest(lengths, n)
    if labels is not None:
        classes = in_order_of(labels, classes)
    return classes, _alone(model, capsules, classes)


def in_order_of(labels, classes):
    """Reorder classes (N, T) so that each one in `labels` (N, T) stands in its label's place."""
    ordered = np.empty_like(classes)
    for row, wanted, found in zip(ordered, labels.tolist(), classes.tolist()):
        others = iter([name for name in found if name not in wanted])
        row[:] = [name if name in found else next(others) for name in wanted]
    return ordered


def part_rows(model, images, labels, targets=None):
    """Return classes (N, T) and rows of images: original, decoded parts and their targets."""
    classes, found = parts(model, images, labels.shape[1], labels)
    rows = {"original": _seen(model, images)}
    for part in range(labels.shape[1]):
        rows[f"capsule_{part + 1}"] = found[:, part]
        if targets is not None:
            rows[f"target_{part + 1}"] = _seen(model, targets[:, part])
    return classes, rows


def named_rows(model, images):
    """Return predictions and rows of images: original, longest capsule, capsule of the label."""
    labels = images.labels
    if labels.ndim > 1:
        return part_rows(model, images.images, labels, images.extras.get("targets"))
    code = map_batches(model.encode, images.images)
    classes = winners(code["probabilities"])
    rows = {
        "original": _seen(model, images.images),
        "longest_capsule": _alone(model, code["capsules"], classes[:, None])[:, 0],
    }
    if (classes != labels).any():
        rows["capsule_of_the_label"] = _alone(model, code["capsules"], labels[:, None])[:, 0]
    return classes, rows


def class_words(classes, names=None):
    """Return one text per image of classes (N,) or (N, K): "4" or "3+8", with names "cat"."""
    known = range(len(names or ()))
    return [
        "+".join(str(names[j] if j in known else j) for j in np.ravel(each)) for each in classes
    ]


def as_words(labels, classes, names=None):
    """Return one caption per image: "4", or "5 as 3" if label and prediction differ."""
    words = []
    for label, named in zip(class_words(labels, names), class_words(classes, names)):
        words.append(label if label == named else f"{label} as {named}")
    return words


def segmented(model, images, labels=None, targets=None):
    """Return classes (N, 2) and rows of images: original, parts in red and green, targets."""
    classes, found = parts(model, images, 2, labels)
    grey = _seen(model, images).mean(axis=-1, keepdims=True)
    rows = {"original": grey.repeat(3, axis=-1), "decoded": in_colour(found)}
    if targets is not None:
        seen = [_seen(model, targets[:, part]) for part in range(2)]
        rows["targets"] = in_colour(np.stack(seen, axis=1))
    return classes, rows


def in_colour(pairs):
    """Return RGB images (N, H, W, 3) of pairs (N, 2, H, W, C), first in red, second in green."""
    grey = pairs.mean(axis=-1)
    return np.stack([grey[:, 0], grey[:, 1], np.zeros_like(grey[:, 0])], axis=-1).astype("float32")


def _alone(model, capsules, classes):
    """Return images (N, T, H, W, C) of the capsules `classes` (N, T), each decoded alone."""
    alone = np.arange(capsules.shape[1]) == classes[..., None]
    codes = capsules[:, None] * alone[..., None].astype(capsules.dtype)
    shown = render(model, codes.reshape(-1, *capsules.shape[1:]))
    return shown.reshape(*classes.shape, *shown.shape[1:])


def _seen(model, images):
    """Return the pixels of images, or of the window that the model sees."""
    view = getattr(model, "view", None)
    return to_pixels(images) if view is None else map_batches(view, images)


FRAME = "#b0452c"
CAPTION = (
    "Framed: from the class down, what gives most (activation times coupling) to what is framed in "
    "the next layer;\nbelow couplings, its own as routing starts and after each iteration. Maps of "
    "couplings are those after the last one. Grey: out of sight."
)
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
    known = range(len(names or ()))
    names = [str(names[j] if j in known else j) for j in range(classes)]
    steps = ["start", *map(str, range(1, iterations))]
    ratios = [1.6, max(3.0, 0.52 * classes), 3.8]
    wide, heights = 1.8 + sum(ratios), [max(2.4, 0.9 + 0.45 * iterations)]
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
        panel.set_title(title, fontsize=10)


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
