"""Maps of each layer's activations, and of its coupling coefficients on the path to a class."""

import numpy as np

from keras_capsule_poe.data.mapping import map_batches

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
