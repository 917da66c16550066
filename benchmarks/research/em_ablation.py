"""What the parts of matrix capsules are worth, as in the ablation of Hinton et al., 2018, Table 1.

Trains a recipe of `matrix-capsules` as it is and with one thing changed: iterations of routing,
none ("uniform": the parents are found once, by the assignment that routing starts from, at the
temperature that three iterations end with), no coordinates, other losses, variational routing.
Printed is the accuracy on held-out training images after the last epoch: mean and deviation over
the seeds. What was measured is kept in FOLDER; what was stopped goes on.

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


def last_temperature():
    """The inverse temperature of which one iteration has what the third of three has."""
    options = EMOptions(iterations=3)
    one, three = (options.inverse_temperature_at(t) for t in (0, 2))
    return options.inverse_temperature * three / one


ROWS = {
    "3 iterations": {},
    "2 iterations": {"matrix.iterations": 2},
    "1 iteration": {"matrix.iterations": 1},
    "uniform": {"matrix.iterations": 1, "matrix.inverse_temperature": last_temperature()},
    "no coordinates": {"matrix.coordinates": False},
    "margin loss": {"matrix.loss": "margin"},
    "cross-entropy": {"matrix.loss": "cross-entropy"},
    "variational": {"matrix.routing": "variational"},
}


def config_of(args, row, seed):
    """The `RunConfig` of a row."""
    settings = {**DATASETS.get(args.dataset, {}), **ROWS[row]}
    return classifiers.config_of(args, args.dataset, args.recipe, settings, seed, FAMILY)


def judge(model, data):
    """The share of held-out training images that are named rightly."""
    return shares("held_out", classifiers.rightly(model, data.held_out))


def table(figures):
    """Markdown of figures by row and seed."""
    columns = {"row": "", "seeds": "", "held out %": "", "epochs": "", "minutes": ".1f"}
    lines = [
        (row, len(seeds), spread([found["held_out"] for found in seeds.values()]),
         max(found["epochs"] for found in seeds.values()),
         sum(found["minutes"] for found in seeds.values()) / len(seeds))
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
