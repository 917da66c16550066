"""Classifiers one after another: accuracy after the last epoch, time, memory and parameters.

A case is DATASET:RECIPE:EPOCHS, or with settings beside, DATASET:RECIPE:EPOCHS:SETTING=VALUE,...
A recipe of another family than `capsnet` has its name before it: mnist:matrix-capsules/small:5.
Nothing is chosen on test images. `held out` is of the last training images, which are not
trained on. Of images of two classes, `error` is that of pairs and `digit error` that of their
digits. Memory is the most that training took above what the program took before. Trainings are
kept in FOLDER; what was stopped goes on.

In full: python benchmarks/research/classifiers.py build/classifiers
Usage: python benchmarks/research/classifiers.py FOLDER [CASE ...] [--seeds N ...] [--limit N]
           [--epochs N] [--set SETTING=VALUE ...] [--table]
"""

import _classifiers as classifiers
from _shares import share, shares, table

CASES = (
    "mnist:paper:3",
    "mnist:paper:3:coefficients=uniform",
    "mnist:paper:3:network=cnn",
    "mnist:small:10",
    "mnist:small:10:coefficients=uniform",
    "mnist:small:10:network=cnn",
    "mnist:efficient:10",
    "mnist:efficient:10:coefficients=uniform",
    "mnist:efficient:10:network=cnn",
    "mnist:shared:10",
    "fashion_mnist:small:10",
    "fashion_mnist:small:10:coefficients=uniform",
    "fashion_mnist:small:10:network=cnn",
    "multimnist:small:8",
    "multimnist:small:8:coefficients=uniform",
    "multimnist:small:8:network=cnn",
)


def judge(model, data):
    """The test error, of pairs and digits where there are two."""
    named = classifiers.named(model, data.test)
    if named.ndim == 1:
        return shares("test", named)
    return {
        **shares("test", named.all(axis=1)),
        "digit_error": 1 - float(named.mean()),
    }


def case_of(args, case, seed):
    """The `Settings` of a case.

    Raises:
        SystemExit: If it is none.
    """
    dataset, *words = case.split(":", 3)
    if len(words) < 2 or not words[1].isdigit():
        raise SystemExit(f"A case is DATASET:RECIPE:EPOCHS[:SETTING=VALUE,...]. Received: {case}")
    recipe, epochs, *more = words
    family, _, recipe = recipe.rpartition("/")
    family = family or "capsnet"
    if family not in classifiers.FAMILIES:
        known = " or ".join(classifiers.FAMILIES)
        raise SystemExit(f"A family of classifiers is {known}. Received: {family}, in {case}")
    more = more[0].split(",") if more else []
    settings = classifiers.pairs([f"epochs={epochs}", *more], family)
    return classifiers.config_of(args, dataset, recipe, settings, seed, family)


def main():
    parser = classifiers.parser(__doc__, models=None)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="CASE")
    args = parser.parse_args()
    rows, lines = classifiers.Rows(args.folder, not args.table), []
    cases = [(case, seed, case_of(args, case, seed)) for case in args.cases for seed in args.seeds]
    for case, seed, config in cases:
        found = rows.figures(case, config, judge)
        if not found:
            continue
        digits = found.get("digit_error")
        lines.append(
            (*case.split(":", 2)[:2], case.split(":", 2)[2], seed, found["parameters"],
             found["epochs"], 100 * found["held_out"], share(found, "test"),
             None if digits is None else 100 * digits, found["minutes"], found["extra_mb"])
        )  # fmt: skip
    columns = {"data set": "", "recipe": "", "epochs, settings": "", "seed": "", "parameters": ","}
    columns |= {"epochs": "", "held out %": ".2f", "test %": "", "digit error %": ".2f"}
    print("\n" + table({**columns, "minutes": ".1f", "MB": ".0f"}, lines))


if __name__ == "__main__":
    main()
