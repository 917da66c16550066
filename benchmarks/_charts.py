"""Charts of the results pages, as SVG files that are readable on light and dark pages."""

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# Readable on white and on dark grey.
INK, COLOURS = "#808080", ("#3f7fbf", "#d9772b")


def set_look():
    """Set the look of all figures."""
    plt.rcParams.update(
        {
            "svg.hashsalt": "capsules",
            "svg.fonttype": "none",
            "font.size": 11,
            "axes.spines.top": False,
            "axes.spines.right": False,
            **dict.fromkeys(
                "text.color axes.labelcolor axes.edgecolor xtick.color ytick.color".split(), INK
            ),
        }
    )


def save(figure, path):
    """Save a figure, the same file for the same content, and close it."""
    look = {"transparent": True, "bbox_inches": "tight", "metadata": {"Date": None}}
    figure.savefig(path, **look)
    plt.close(figure)


def charts(folder, read, datasets):
    """Draw the charts into a folder.

    Args:
        folder: Path.
        read: Function of a path below docs/benchmarks to its rows.
        datasets: Dict of titles by data set.
    """
    set_look()
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in {
        "ladder": lambda: _ladder(read, datasets),
        "comparison": lambda: _comparison(read, datasets),
        "iterations": lambda: _iterations(read),
        "cd_step": lambda: _cd_step(read),
    }.items():
        save(draw(), folder / f"{name}.svg")


def _bars_of(axes, names, groups):
    """Horizontal bars: a group of labelled bars for each name."""
    height = 0.8 / len(groups)
    for k, (label, values, errors) in enumerate(groups):
        places = np.arange(len(names)) + (k - (len(groups) - 1) / 2) * height
        axes.barh(places, values, height, xerr=errors, color=COLOURS[k], label=label, ecolor=INK)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))


def _ladder(read, datasets):
    found = {title: read(f"ladder/{dataset}.json") for dataset, title in datasets.items()}
    names = [name for name in next(iter(found.values())) if name[0] == "+"]
    names = ["plain form", *names, "default"]
    groups = [
        (title, [np.mean([row["coverage"] for row in rows[name].values()]) for name in names], None)
        for title, rows in found.items()
    ]
    figure, axes = plt.subplots(figsize=(7.5, 4.5))
    _bars_of(axes, names, groups)
    axes.set_xlabel("coverage: share of held-out images with a draw of a single capsule nearby")
    return figure


def _comparison(read, datasets):
    names = list(read("comparison/mnist.json"))
    groups = []
    for dataset, title in datasets.items():
        rows = read(f"comparison/{dataset}.json")
        groups.append((title, [rows[name]["coverage"] for name in names], None))
    figure, axes = plt.subplots(figsize=(7.5, 0.42 * len(names) + 1))
    _bars_of(axes, names, groups)
    axes.set_xlabel("coverage: test images that have a draw nearby")
    return figure


def _iterations(read):
    figure, axes = plt.subplots(figsize=(6.5, 3.8))
    kept = read("routing_iterations/mnist/small/routing_iterations.json")
    for (name, seeds), style in zip(kept.items(), ("-", "--", "-.", ":")):
        losses = [[epoch["loss"] for epoch in row["history"]] for row in seeds.values()]
        mean = np.mean(losses, axis=0)
        axes.plot(range(1, 1 + len(mean)), mean, style, color=COLOURS[0], label=name)
    axes.set(xlabel="epoch", ylabel="training loss (3 seeds)", xticks=range(1, 1 + len(mean)))
    axes.set_ylim(0)
    axes.legend(frameon=False)
    return figure


def _cd_step(read):
    rows = [row for row in read("cd_step.json")["rows"] if row["inputs"] == 576]
    forms = list(dict.fromkeys(row["form"] for row in rows))
    figure, axes = plt.subplots(figsize=(6.5, 3.8))
    for form, style in zip(forms, ("--", "-.", ":", "-")):
        found = [
            (row["images"], row["ms"]) for row in rows if row["form"] == form and row.get("ms")
        ]
        colour = COLOURS[1] if form == "ours" else INK
        axes.loglog(*zip(*found), style, marker="o", color=colour, label=form)
    axes.set(xlabel="images in a batch", ylabel="ms for one step")
    axes.set_xticks([32, 128, 1024], ["32", "128", "1024"])
    axes.minorticks_off()
    axes.legend(frameon=False)
    return figure
