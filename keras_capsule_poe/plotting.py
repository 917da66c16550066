"""Images of models, in rows for pictures: samples, reconstructions, traversals and chains."""

import base64
import io
import math

import numpy as np
from keras import ops

from keras_capsule_poe.core.labels import longest, winners
from keras_capsule_poe.core.numerics import compiled, step_seed
from keras_capsule_poe.data.mapping import CHUNK, map_batches, to_pixels
from keras_capsule_poe.data.pixels import check_memory
from keras_capsule_poe.directions import (
    DRAWS,
    alone,
    codes_of_capsule,
    decoded,
    effects,
    shown_directions,
)
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.io.pictures import picture
from keras_capsule_poe.io.text import class_word, printable

# Letters of each of two names of a caption.
_PAIRED = 12
# Names of the rows of reconstructions, if they differ from the keys.
_NAMES = {
    "one_capsule": "longest capsule",
    "routing_off": "uniform routing",
    "divergence_step": "one mean-field step",
}


def row_names(rows):
    """Return the names of rows of reconstructions, from their keys."""
    return [_NAMES.get(name, name.replace("_", " ")) for name in rows]


def embedded(rows, **options):
    """Return a `picture` of rows of images as the `address` of a PNG, `width` and `height`."""
    shown, data = picture(rows, **options), io.BytesIO()
    shown.save(data, "PNG", optimize=True)
    address = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode("ascii")
    return {"address": address, "width": shown.width, "height": shown.height}


def render(model, capsules):
    """Return the images (N, H, W, C) of codes (N, J, E), as an array."""
    return map_batches(lambda codes: model.render(codes)["images"], capsules)


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


def traversal(code, capsule, vectors, steps, span, inside="ball"):
    """Return codes (R, steps, J, E): one capsule of `code` (J, E) moves along vectors (R, E)."""
    codes = np.tile(code, (len(vectors), steps, 1, 1))
    for row, vector in zip(codes, vectors):
        row[:, capsule] += np.linspace(-span, span, steps, dtype="float32")[:, None] * vector
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


def traversed(model, code, capsule, vectors, steps, span):
    """Return images (R, steps, H, W, C) of the codes of `traversal`."""
    n = len(vectors) * steps
    check_memory(f"{n:,} images", 8 * n * (code.size + math.prod(model.image_shape)))
    codes = traversal(code, capsule, vectors, steps, span, model.CODES)
    images = decoded(model, codes.reshape(-1, *code.shape))
    return images.reshape(*codes.shape[:2], *images.shape[1:])


def moved_capsule(model, capsule=None, image=None, rows=32, steps=11, span=0.5, images=None):
    """Return images (R, steps, H, W, C) of a capsule that moves, the capsule, and names of rows.

    Args:
        model: Model with capsules that can be decoded.
        capsule: Index. None: the most probable one of the image; without an image, the first.
        image: Array (1, H, W, C), whose code is varied. None: the usual code of the capsule.
        rows: How many at most: named directions, the best explained first, then dimensions, those
            that change images most first.
        steps, span: Numbers, see `traversal`.
        images: For classifiers, images whose codes give the named directions. None: dimensions.
    """
    code = around = named_by = None
    if image is not None:
        found = map_batches(model.encode, image)
        code = found["capsules"][0]
        capsule = int(winners(found["probabilities"])[0]) if capsule is None else capsule
    capsule = capsule or 0
    modes = getattr(model, "modes", ())
    if modes or code is None:
        around, drawn = usual_code(model, capsule)
        code = around if code is None else code
        named_by = drawn if "single" in modes else None
    elif images is not None:
        named_by = codes_of_capsule(model, capsule, images)
    named = [] if named_by is None else shown_directions(model, capsule, named_by)[:rows]
    if around is not None:
        order = np.argsort(-effects(model, around, capsule, drawn.std(axis=0)), kind="stable")
    elif model.dim > rows:
        order = np.argsort(-effects(model, code, capsule, np.full(model.dim, 2 * span)))
    else:
        order = np.arange(model.dim)
    order = order[: rows - len(named)]
    vectors = [*(each.vector for each in named), *np.eye(model.dim, dtype="float32")[order]]
    names = [f"{each.name}, R² {each.r2:.2f}" for each in named]
    names += [f"dimension {dimension}" for dimension in order]
    return traversed(model, code, capsule, vectors, steps, span), capsule, names


def usual_code(model, capsule):
    """Return the usual code (J, E) of a capsule alone, and codes (N, E) of the capsule."""
    if "single" in model.modes:
        codes = codes_of_capsule(model, capsule)
        code = alone(codes.mean(axis=0, keepdims=True), model.capsules, capsule)[0]
    else:
        drawn = model.sample(DRAWS, 0).capsules
        code, codes = drawn.mean(axis=0), drawn[:, capsule]
    if model.CODES == "ball":
        # Vectors of many directions cancel: their mean is shorter than they are.
        usual = np.linalg.norm(codes, axis=-1).mean()
        code[capsule] *= usual / max(np.linalg.norm(code[capsule]), 1e-12)
    return code, codes


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
    return ["+".join(class_word(j, names) for j in np.ravel(each)) for each in classes]


def as_words(labels, classes, names=None):
    """Return one caption per image: "4", or "5 as 3" if label and prediction differ."""
    words = []
    for label, named in zip(class_words(labels, names), class_words(classes, names)):
        pair = f"{printable(label, _PAIRED)} as {printable(named, _PAIRED)}"
        words.append(label if label == named else pair)
    return words


def segmented(model, images, labels=None, targets=None):
    """Return classes (N, 2) and rows of images: original, parts in orange and blue, targets."""
    classes, found = parts(model, images, 2, labels)
    grey = _seen(model, images).mean(axis=-1, keepdims=True)
    rows = {"original": grey.repeat(3, axis=-1), "decoded": in_colour(found)}
    if targets is not None:
        seen = [_seen(model, targets[:, part]) for part in range(2)]
        rows["targets"] = in_colour(np.stack(seen, axis=1))
    return classes, rows


# The colours of two overlapping parts, which all eyes tell apart; both together are white.
ORANGE, BLUE = np.array([1, 0.6, 0], "float32"), np.array([0, 0.4, 1], "float32")


def in_colour(pairs):
    """Return RGB images (N, H, W, 3) of pairs (N, 2, H, W, C), first in orange, second in blue."""
    first, second = np.moveaxis(pairs.mean(axis=-1, keepdims=True), 1, 0)
    return (first * ORANGE + second * BLUE).astype("float32")


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


def chain(model, x, steps, every=1, kind=None, seed=0, burn_in=0):
    """Yield (step, states (B, ...)) of Markov chains, after `burn_in` every `every` steps."""
    if not len(x) or min(steps, burn_in) < 0 or every < 1:
        raise BadUse(
            "`chain` needs starts, `steps` and `burn_in` of at least 0 and `every` of at least 1. "
            f"Received: {len(x)} starts, steps={steps}, every={every}, burn_in={burn_in}"
        )
    step = chain_step(model, kind)
    x = ops.convert_to_numpy(x).astype("float32")
    last = burn_in + steps
    for done in range(last + 1):
        if done:
            x = step(x, seed, done)
        # The last state is always yielded.
        if done == last or (done >= burn_in and (done - burn_in) % every == 0):
            yield done, x


def chain_step(model, kind=None):
    """Return a compiled function from all states, seed and step number to the next states."""
    kinds = model.CHAINS
    if kind not in (None, *kinds) or not kinds:
        has = f"one of {', '.join(map(repr, kinds))}" if kinds else "None: the model has no chain"
        raise BadUse(f"`kind` must be {has}. Received: kind={kind!r}")
    is_gibbs = (kind or kinds[0]) == "gibbs"
    graph = compiled(
        lambda x, seeds: model.chain_step(x, seeds[0]) if is_gibbs else model.chain_step(x)
    )

    def step(x, seed, done):
        # Each chunk has a different seed at each step, so no two chains use the same draws.
        # The first chunk has the seed of the endpoint `gibbs`, which has no chunks.
        chunks = -(-len(x) // CHUNK)
        seeds = (int(step_seed(seed, done)) + 7919 * np.arange(chunks)) % (2**31 - 1)
        return map_batches(graph, (x, np.repeat(seeds, CHUNK)[: len(x)]))

    return step


def chain_arrays(model, x, steps, every=1, kind=None, seed=0, burn_in=0):
    """Return the states of `chain` as `images` (S, B, H, W, C), and their `step` (S,)."""
    decode, kept = compiled(model.from_visible), 1 + -(-steps // every)
    check_memory(
        f"{kept:,} states of {len(x):,} chains", 8 * kept * len(x) * math.prod(model.image_shape)
    )
    states = chain(model, x, steps, every, kind, seed, burn_in)
    step, images = zip(*((done, map_batches(decode, x)) for done, x in states))
    return {"images": np.stack(images), "step": np.array(step)}


def chain_start(model, n, seed, images=None):
    """Return the visible units (n, ...) of noise or of images, as an array."""
    if images is None:
        check_memory(f"{n:,} chains", 8 * n * math.prod(model.image_shape))
        return ops.convert_to_numpy(model.visible_noise(n, seed))
    return map_batches(model.to_visible, images[:n])
