"""The pictures of the page "The model in five minutes", from a pretrained model and kept rows.

- `routing`: votes in the plane for two experts, by iteration of the formula in NumPy;
- `up_down`, `decoding`, `competition`, `whitening`: of the pretrained model of digits;
- `load_balancing`: of the rows of the ablation ladder.

Usage: python benchmarks/research/model_pictures.py [FOLDER]
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _charts import COLOURS, INK, plt, save, set_look
from agreement import PRETRAINED, without

ROOT = Path(__file__).resolve().parents[2]
DATASET, IMAGE, CAPSULE, SEED = "mnist", 7, 3, 0
WIDTH = 5.0
BLUE, ORANGE = COLOURS


def routed(votes, iterations, agreement_scale, coefficient_sum=1.0):
    """Coefficients (I, J) of each iteration for votes (I, J, E), and the z (J, E) they give.

    >>> votes = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.1], [0.0, -1.0]]])
    >>> [c.round(2).tolist() for c, _ in routed(votes, 2, 5.0)]
    [[[0.5, 0.5], [0.5, 0.5]], [[0.99, 0.01], [0.99, 0.01]]]
    """
    logits, found = np.zeros(votes.shape[:2]), []
    directions = votes / np.linalg.norm(votes, axis=-1, keepdims=True)
    for _ in range(iterations):
        powers = np.exp(logits)
        c = coefficient_sum * powers / powers.sum(axis=1, keepdims=True)
        z = np.einsum("ij,ije->je", c, votes)
        found.append((c, z))
        lengths = np.maximum(np.linalg.norm(z, axis=-1, keepdims=True), 1e-12)
        logits = logits + agreement_scale * np.einsum("ije,je->ij", directions, z / lengths)
    return found


def bare(axes):
    """Leave nothing of axes but their content."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def arrow(figure, start, end, colour=INK):
    """Draw an arrow between points of a figure, whose sides are one."""
    style = {"arrowstyle": "-|>", "color": colour, "lw": 2, "mutation_scale": 16}
    axes = figure.axes[0]
    axes.annotate("", end, start, "figure fraction", "figure fraction", arrowprops=style)


def routing(_):
    """Votes for two experts: those that agree gain."""
    random = np.random.default_rng(SEED)
    angles = np.stack([np.full(10, 0.6), np.full(10, 2.4)], axis=1)
    agree = np.arange(10)[:, None] < 6
    angles = np.where(agree == [True, False], angles, random.uniform(0, 2 * np.pi, (10, 2)))
    angles += random.normal(scale=0.15, size=angles.shape)
    votes = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    steps = routed(votes, 4, 2.0)
    longest = max(np.linalg.norm(z, axis=-1).max() for _, z in steps)
    figure, axes = plt.subplots(2, 2, figsize=(WIDTH, 5.4))
    for row, (step, title) in zip(axes, ((0, "first iteration"), (3, "fourth iteration"))):
        c, z = steps[step]
        for j, plane in enumerate(row):
            for vote, weight in zip(votes[:, j], c[:, j]):
                plane.plot(*zip((0, 0), vote), color=BLUE, lw=6 * weight, solid_capstyle="round")
            ends = {"arrowstyle": "-|>", "color": ORANGE, "lw": 3, "mutation_scale": 18}
            plane.annotate("", 1.3 * z[j] / longest, (0, 0), arrowprops=ends)
            plane.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
            plane.set_title(f"expert {j + 1}, {title}", fontsize=11)
            bare(plane)
    figure.tight_layout()
    return figure


def up_down(shown):
    """An image, and what one pass through the experts makes of it."""
    figure, axes = plt.subplots(2, 3, figsize=(WIDTH, 3.9))
    (_, top, _), (left, _, right) = axes
    for each in axes.flat:
        bare(each)
    top.bar(range(len(shown["lengths"])), shown["lengths"], color=ORANGE)
    top.axhline(0, color=INK, lw=1)
    top.set_title("lengths of the experts", fontsize=11)
    left.imshow(shown["before"], cmap="gray", vmin=0, vmax=1)
    left.set_title("primary capsules,\nas an image", fontsize=11)
    right.imshow(shown["after"], cmap="gray", vmin=0, vmax=1)
    right.set_title("after the pass,\nas an image", fontsize=11)
    figure.tight_layout()
    arrow(figure, (0.2, 0.55), (0.36, 0.75), BLUE)
    arrow(figure, (0.64, 0.75), (0.8, 0.55), BLUE)
    figure.text(0.26, 0.7, "up", color=BLUE, ha="right")
    figure.text(0.74, 0.7, "down", color=BLUE)
    figure.text(0.5, 0.24, "training makes\nthe left one\nmore probable,\nthe right one less",
                ha="center", va="center")  # fmt: skip
    return figure


def decoding(shown):
    """Three random vectors of one capsule, and their images."""
    figure, axes = plt.subplots(3, 3, figsize=(WIDTH, 4.6), width_ratios=(1.6, 1, 1))
    for (vector, features, image), *parts in zip(axes, *shown["draws"]):
        code, maps, pixels = parts
        vector.bar(range(len(code)), code, color=np.where(code > 0, BLUE, ORANGE))
        vector.axhline(0, color=INK, lw=1)
        vector.set_ylim(-0.6, 0.6)
        features.imshow(maps, cmap="gray")
        image.imshow(pixels, cmap="gray", vmin=0, vmax=1)
    for each in axes.flat:
        bare(each)
    titles = "vector of one capsule", "feature map", "image"
    for each, title in zip(axes[0], titles):
        each.set_title(title, fontsize=11)
    figure.tight_layout(w_pad=2.5)
    for row in axes:
        for one, other in zip(row, row[1:]):
            a, b = one.get_position(), other.get_position()
            middle = (a.y0 + a.y1) / 2
            arrow(figure, (a.x1 + 0.01, middle), (b.x0 - 0.01, middle))
    return figure


def competition(shown):
    """How the capsules share one image, with and without competition."""
    figure, axes = plt.subplots(2, 1, figsize=(WIDTH, 3.8), sharex=True)
    titles = "without competition", "with competition"
    for each, shares, title in zip(axes, shown["competition"], titles):
        each.bar(range(len(shares)), 100 * shares, color=BLUE)
        each.set(ylim=(0, 100), ylabel="% of image", title=title)
    axes[1].set(xlabel="capsule", xticks=range(0, len(shown["competition"][0]), 5))
    figure.tight_layout()
    return figure


def whitening(shown):
    """Codes of one capsule in a plane, before and after whitening."""
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.0))
    for each, points, title in zip(axes, shown["whitening"], ("before", "after")):
        each.add_patch(plt.Circle((0, 0), 1, fill=False, color=INK))
        each.scatter(*points.T, s=5, color=BLUE, edgecolors="none")
        each.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), aspect="equal", title=title)
        bare(each)
    figure.tight_layout()
    return figure


def load_balancing(_):
    """Share of the images that the busiest capsule wins."""
    figure, axes = plt.subplots(figsize=(WIDTH, 2.4))
    names = {"default, no load balancing": "without", "default": "with"}
    for k, (dataset, title) in enumerate({"fashion_mnist": "clothes", "mnist": "digits"}.items()):
        rows = json.loads((ROOT / f"docs/benchmarks/ladder/{dataset}.json").read_text())
        shares = [100 * np.mean([r["most_won"] for r in rows[n].values()]) for n in names]
        places = np.arange(2) + 0.4 * (k - 0.5)
        axes.barh(places, shares, 0.38, color=COLOURS[k], label=title)
    axes.set_yticks(range(2), names.values())
    axes.invert_yaxis()
    axes.axvline(5, color=INK, ls=":")
    axes.set_xlabel("% of images that the busiest of 20 capsules wins")
    axes.legend(frameon=False)
    figure.tight_layout()
    return figure


def from_model():
    """What the pretrained model says of one image, of one capsule and of draws."""
    from keras_capsule_poe.cli.options import load_model
    from keras_capsule_poe.core.numerics import squash
    from keras_capsule_poe.data import load_images
    from keras_capsule_poe.data.mapping import map_batches, to_pixels

    model = load_model(PRETRAINED / DATASET)
    images = to_pixels(load_images(DATASET).train.images[-1000:])
    experts = model.encoder.experts
    x = map_batches(model.to_visible, images)
    z = map_batches(lambda x: experts.route(x).z, x)
    one = x[IMAGE : IMAGE + 1]
    c, collective = experts.route(one)
    back = squash(np.einsum("bij,ijed,bje->bid", c, experts.kernel, squash(collective)))
    free = without(experts, activation_prior_weight=0.0).route(one).coefficients
    shares = [np.mean(each, axis=(0, 1)) / np.mean(each, axis=(0, 1)).sum() for each in (free, c)]
    winner = np.linalg.norm(z, axis=-1).argmax(axis=1)
    capsule = np.bincount(winner).argmax()
    own = z[winner == capsule, capsule]
    whitened = np.asarray(model.encoder.whitening(z))[winner == capsule, capsule]
    # Before: the plane of the mean and of the strongest other direction.
    mean = own.mean(axis=0) / np.linalg.norm(own.mean(axis=0))
    across = own - np.outer(own @ mean, mean)
    plane = np.stack([np.linalg.svd(across)[2][0], mean], axis=1)
    drawn = np.asarray(model.draw_capsule(CAPSULE, 3, SEED, "posterior")["capsules"])
    decoded = model.decode_visible(drawn)
    maps = np.asarray(model.primary.to_features(decoded)).mean(axis=-1)
    return {
        "before": np.asarray(model.from_visible(one))[0, ..., 0],
        "after": np.asarray(model.from_visible(back))[0, ..., 0],
        "lengths": np.linalg.norm(squash(collective)[0], axis=-1),
        "competition": shares,
        "whitening": (np.asarray(squash(own)) @ plane, whitened[:, :2]),
        "draws": (drawn[:, CAPSULE], maps, np.asarray(model.from_visible(decoded))[..., 0]),
    }


PICTURES = (routing, up_down, decoding, competition, whitening, load_balancing)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "docs/images/model")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    set_look()
    shown = from_model()
    for draw in PICTURES:
        save(draw(shown), args.folder / f"{draw.__name__}.svg")


if __name__ == "__main__":
    main()
