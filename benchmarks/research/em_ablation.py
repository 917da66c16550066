"""What the parts of matrix capsules are worth, as in the ablation of Hinton et al., 2018, Table 1.

Trains a recipe of `matrix-capsules` as it is and with one thing changed: iterations of routing,
none ("uniform": the parents are found once, by the assignment that routing starts from, at the
temperature that the recipe's iterations end with), none below the classes ("to classes alone"),
no coordinates, other losses, variational routing at its own learning rate. Printed is the
accuracy on held-out training images after the last epoch, mean and deviation over the seeds, and
the memory that training took beyond what was there before. What was measured is kept in FOLDER;
what was stopped goes on.

In full: python benchmarks/research/em_ablation.py build/em_ablation
Usage: python benchmarks/research/em_ablation.py FOLDER [--dataset NAME] [--recipe NAME]
           [--rows NAME ...] [--seeds N ...] [--epochs N] [--limit N]
           [--set SETTING=VALUE ...] [--table]
"""

import _classifiers as classifiers
from _shares import shares, spread
from _shares import table as table_of

from keras_capsule_poe.functions import EMOptions

FAMILY = "matrix-capsules"
# Of data sets that the recipes' own settings are not for.
DATASETS = {"viewpoints": {"matrix.classes": 5, "matrix.augmentation": "norb"}}
ROWS = {
    "1 iteration": {"matrix.routing_iterations": 1},
    "2 iterations": {"matrix.routing_iterations": 2},
    "3 iterations": {"matrix.routing_iterations": 3},
    "uniform": {"matrix.routing_iterations": 1},
    "to classes alone": {"matrix.inner_routing_iterations": 1},
    "no coordinates": {"matrix.coordinates": False},
    "margin loss": {"matrix.loss": "margin"},
    "cross-entropy": {"matrix.loss": "cross-entropy"},
    "variational": {"matrix.routing": "variational"},
}


def heating(net):
    """How many times the first iteration's inverse temperature the last one's is."""
    options = EMOptions(net.routing_iterations)
    first, last = (options.inverse_temperature_at(t) for t in (0, net.routing_iterations - 1))
    return last / first


def config_of(args, row, seed):
    """The `Settings` of a row."""

    def made(settings):
        return classifiers.config_of(args, args.dataset, args.recipe, settings, seed, FAMILY)

    usual = DATASETS.get(args.dataset, {})
    config = made({**usual, **ROWS[row]})
    if row in ("uniform", "to classes alone"):
        # Layers of one iteration have the inverse temperature that the recipe's end with.
        recipe = made(usual).matrix
        by = heating(recipe)
        config.set(
            "matrix.inner_routing_iterations", ROWS[row].get("matrix.inner_routing_iterations")
        )
        config.set("matrix.inverse_temperature", recipe.inverse_temperature * by)
        if row == "to classes alone":
            config.set("matrix.class_temperature", recipe.class_temperature / by)
        config.given.clear()
    return config


def judge(model, data):
    """The share of held-out training images that are named rightly."""
    return shares("held_out", classifiers.rightly(model, data.held_out))


def table(figures):
    """Markdown of figures by row and seed."""
    columns = {"row": "", "seeds": "", "held out %": "", "epochs": "", "memory MB": ".0f"}
    lines = [
        (row, len(seeds), spread([found["held_out"] for found in seeds.values()]),
         max(found["epochs"] for found in seeds.values()),
         max(found["extra_mb"] for found in seeds.values()))
        for row, seeds in figures.items()
    ]  # fmt: skip
    return table_of(columns, lines)


def arguments(given=None):
    parser = classifiers.parser(__doc__, models=None)
    parser.add_argument("--dataset", default="viewpoints")
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    return parser.parse_args(given)


def main():
    args = arguments()
    rows = classifiers.Rows(args.folder / args.dataset, not args.table)
    figures = {row: {} for row in args.rows}
    for seed in args.seeds:
        for row in args.rows:
            found = rows.figures(row, config_of(args, row, seed), judge)
            if found:
                figures[row][seed] = found
    print("\n" + table({row: seeds for row, seeds in figures.items() if seeds}))


if __name__ == "__main__":
    main()
