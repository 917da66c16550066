"""Tables and charts of the results pages, from the rows that benchmarks keep.

A page in docs/results has lines `<!-- table: NAME -->` and `<!-- end -->`. This script writes the
table NAME between them, and below it the command, the commit and the date of its rows. It draws
the charts of docs/images/results, too. The numbers come from docs/benchmarks alone.

docs/benchmarks/sources.json has the command, commit and date of each file of rows. New rows get
the present commit and date. With --older it lists the rows that are older than their code: how
many commits since then changed their script, and how many changed the package in the folders
`MEASURED`. Comments and docstrings count as changes, too.

Usage: python benchmarks/results.py [--check | --older]
"""

import argparse
import datetime
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "research"))
import _bars
import _shares
from _cells import cell

from keras_capsule_poe.former_names import Metrics

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "docs" / "benchmarks"
PAGES = ROOT / "docs" / "results"
CHARTS = ROOT / "docs" / "images" / "results"
DATASETS = {"fashion_mnist": "Fashion-MNIST", "mnist": "MNIST"}
# The names of metrics in rows, and in tables.
METRICS = {
    "recognised": "confident",
    "purity": "purity",
    "modal_classes": "class coverage",
    "coverage": "coverage",
    "precision": "precision",
    "recall": "recall",
    "frechet": "FID",
    "negatives": "negatives",
}
BLOCK = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read(path):
    """Return the rows of a file below docs/benchmarks."""
    return json.loads((ROWS / path).read_text(), object_hook=Metrics)


def table(columns, rows):
    """Return a Markdown table of lists of strings.

    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text.replace("| --- " * len(columns) + "|", "|---" * len(columns) + "|")


def of_seeds(seeds, names, digits=3):
    """Return the cells of a row: the number of seeds, then mean ± deviation of each metric."""
    found = list(seeds.values())
    return [str(len(found)), *(cell([row.get(name) for row in found], digits) for name in names)]


def number(value):
    """Return a value of a speed benchmark as text, large numbers without an exponent.

    >>> number(2913.2), number(0.12345), number(None), number("ours")
    ('2,913', '0.123', '-', 'ours')
    """
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


CLAIMS = {
    "paper": "plain form (`paper`)",
    "affine": "`affine`",
    "3": "three departures",
    "4": "four departures",
    "default": "default (`generation`)",
}


def claims(dataset, domain):
    """What single capsules draw, by recipe."""
    rows = read(f"claims/{dataset}.json")
    names = "recognised frechet coverage purity modal_classes negatives".split()
    lines = []
    for name, title in CLAIMS.items():
        seeds = {s: rows[f"{dataset}-{s}-{name}"][domain] for s in range(3)}
        lines.append([title, *of_seeds(seeds, names)])
    return table(["model", "seeds", *(METRICS[name] for name in names)], lines)


def signs():
    """How the free energy separates images from their negatives."""
    lines = []
    for name, title in CLAIMS.items():
        cells = []
        for dataset in DATASETS:
            rows = read(f"claims/{dataset}.json")
            found = [rows[f"{dataset}-{s}-{name}"]["prior"] for s in range(3)]
            cells += [cell([row[key] for row in found]) for key in ("auc", "flip")]
        lines.append([title, *cells])
    parts = ("area under the curve", "cosine of x and -x, decoded")
    columns = [f"{title}: {part}" for title in DATASETS.values() for part in parts]
    return table(["model", *columns], lines)


def plain_form():
    """How well the paper's plain form codes images."""
    names = {
        "mean": "relative error: mean of the features",
        "one_step": "relative error: one contrastive-divergence step",
        "whole_code": "relative error: decoded whole codes",
        "linear": "relative error: best linear map of whole codes",
        "accuracy": "decoded whole codes classified rightly",
        "linear_accuracy": "best linear map, classified rightly",
        "ceiling": "autoencoder, classified rightly",
        "one_capsule": "most probable capsule alone, confident",
    }
    found = {dataset: read(f"plain_form/{dataset}.json")["recipe"] for dataset in DATASETS}
    lines = [[title, *(cell([found[d][name]]) for d in DATASETS)] for name, title in names.items()]
    return table(["held-out images", *DATASETS.values()], lines)


def normalisation():
    """Whether coefficients sum to one over inputs or over outputs, in the plain form."""
    kept = {
        "recipe": "inputs; inputs",
        "decoder normalised over outputs": "inputs; outputs",
        "encoder normalised over outputs": "outputs; inputs",
        "both normalised over outputs": "outputs; outputs",
    }
    lines = []
    for name, title in kept.items():
        cells = []
        for dataset in DATASETS:
            row = read(f"plain_form/{dataset}.json")[name]
            cells += [cell([row["whole_code"]]), cell([row["accuracy"]])]
        lines.append([title, *cells])
    parts = ("relative error", "classified rightly")
    columns = [f"{title}: {part}" for title in DATASETS.values() for part in parts]
    return table(["softmax of encoder; decoder over", *columns], lines)


def whole_codes():
    """What decodings of whole codes of the default show."""
    names = {
        "whole_code": "relative error",
        "mean": "relative error of the mean",
        "accuracy": "classified rightly",
        "ceiling": "autoencoder, classified rightly",
    }
    lines = []
    for dataset, title in DATASETS.items():
        lines.append([title, *of_seeds(read(f"whole_codes/{dataset}.json"), names)])
    return table(["data", "seeds", *names.values()], lines)


AGREEMENT = {
    "default": CLAIMS["default"],
    "plain form": CLAIMS["paper"],
}


def agreement():
    """What changes if routing ignores the agreement, and how many capsules carry an image."""
    names = "change experts whole_code experts_alone without_agreement one_capsule".split()
    lines = []
    for dataset, title in DATASETS.items():
        rows = read(f"agreement/{dataset}.json")
        for name, row in ((name, rows[key]) for key, name in AGREEMENT.items() if key in rows):
            lengths = ", ".join(cell([length], 2) for length in row["lengths"][:3])
            winners, *cells = (cell([row.get(each)]) for each in ("winners", *names))
            lines.append([title, name, winners, cells[0], cells[1], lengths, *cells[2:]])
    columns = ["data", "model", "other winner without agreement", "change of z", "experts an image"]
    columns += ["mean lengths of the three longest", "error of whole codes"]
    columns += ["error, experts alone", "error, experts without agreement"]
    return table([*columns, "error, one capsule"], lines)


DRAWS = {name: name for name in "confident FID precision recall coverage purity".split()}
CODED = {
    "winners": "other winner without agreement",
    "experts": "experts an image",
    "whole_code": "error of whole codes",
}


def _trained(path, columns):
    """A table of rows that train the whole model."""
    rows = read(path).items()
    lines = [[name, *of_seeds(seeds, columns)] for name, seeds in rows]
    return table(["row", "seeds", *columns.values()], lines)


def all_images(dataset):
    """Rows of models that trained on all images: draws, and the effect of agreement."""
    errors = {
        "experts_alone": "error, experts alone",
        "without_agreement": "error, experts without agreement",
        "one_capsule": "error, one capsule",
    }
    columns = {**DRAWS, **CODED, **errors, "cpu_seconds": "processor's seconds"}
    return _trained(f"ladder/{dataset}-all.json", columns)


def ladder(dataset):
    """The worth of each departure from the paper's plain form."""
    prior = {f"prior_{name}": f"prior: {name}" for name in "confident FID recall coverage".split()}
    columns = {**prior, **DRAWS, "most_won": "busiest capsule", **CODED}
    return _trained(f"ladder/{dataset}.json", columns)


def few_images():
    """What few images lose by fewer steps."""
    names = "confident FID precision recall coverage purity nats cpu_seconds".split()
    columns = ["model", "steps", "seeds", *names[:-2]]
    lines = [
        [*name.split(", "), *of_seeds(seeds, names)]
        for name, seeds in read("few_images.json").items()
    ]
    columns += ["nats an image", "processor's seconds"]
    return table(columns, lines)


def pretrained():
    """The pretrained models: draws of each domain, and reconstructions from whole codes."""
    names = "confident FID precision recall coverage purity relative_distance copies".split()
    lines = []
    for dataset, title in DATASETS.items():
        rows = read(f"pretrained/{dataset}.json")["samples"]
        for row in ("whole_code", "prior", "posterior", "joint"):
            cells = [cell([rows[row][n]]) if n in rows[row] else "-" for n in names]
            lines.append([title, row.replace("_", " "), *cells])
    return table(["data", "images", *names[:-2], "distance to training images", "copies"], lines)


def instantiation():
    """How many capsules have a dimension for a property of the image."""
    lines = []
    for dataset, title in DATASETS.items():
        by_seed = read(f"instantiation/{dataset}.json")
        for quantity in next(iter(by_seed.values())):
            found = [seed[quantity] for seed in by_seed.values()]
            strong = [sum(abs(row["best"]) >= 0.7 for row in rows) for rows in found]
            moved = [np.median([abs(row["moved"]) for row in rows]) for rows in found]
            counts = ", ".join(f"{s} of {len(rows)}" for s, rows in zip(strong, found))
            lines.append([title, quantity, counts, cell(moved)])
    columns = ["data", "property", "capsules with such a dimension, by seed"]
    return table([*columns, "correlation when the dimension moves"], lines)


STARTED = {**DATASETS, "cifar10": "CIFAR-10, 12,000 images"}


def start():
    """What contrastive divergence adds to the start of the maps."""
    drawn = {
        f"prior_{key}": METRICS[key] for key in ("recognised", "frechet", "recall", "coverage")
    }
    names = {"whole_code": "relative error of whole codes", **drawn}
    lines = []
    for dataset, title in STARTED.items():
        for name, seeds in read(f"start/{dataset}.json").items():
            lines.append([title, name, *of_seeds(seeds, names)])
    return table(["data", "row", "seeds", *names.values()], lines)


def comparison(dataset):
    """What all families and the baselines draw."""
    rows = read(f"comparison/{dataset}.json")
    names = "recognised frechet precision recall coverage purity".split()
    lines = [[name, *(cell([row.get(key)]) for key in names)] for name, row in rows.items()]
    return table(["images", *(METRICS[name] for name in names)], lines)


PUBLISHED = {
    "mnist:paper:3": "99.75 (Sabour et al., 2017; 640 epochs)",
    "mnist:efficient:12:batch_size=32,learning_rate_schedule=cosine,learning_rate=0.001": (
        "99.74 (Mazzia et al., 2021; 150 epochs)"
    ),
    "mnist:matrix-capsules/small:5": "99.56, larger network (Hinton et al., 2018)",
    "multimnist:efficient:6:augmentation=none,batch_size=32,learning_rate_schedule=cosine,"
    "learning_rate=0.005,optimizer=muon": "94.8 (Sabour et al., 2017)",
}


def classifiers():
    """Accuracy of classifiers on the test images."""
    lines = []
    for case, seeds in read("classifiers/rows.json").items():
        dataset, recipe, epochs, *more = case.split(":")
        settings = ", ".join(more).replace(",", ", ")
        for seed, row in seeds.items():
            lines.append(
                [dataset, recipe, settings, epochs, seed, f"{row['parameters']:,}",
                 f"{100 * row['held_out']:.2f}", _shares.share(row, "test"),
                 PUBLISHED.get(case, "-"), f"{row['minutes']:.0f}"]
            )  # fmt: skip
    columns = ["data", "recipe", "changed settings", "epochs", "seed", "parameters", "held out %"]
    return table([*columns, "test %, 95% interval", "published %", "minutes"], sorted(lines))


MODELS = {
    "capsules": "capsules, routed",
    "uniform": "capsules, uniform coefficients",
    "cnn": "convolutional network",
}


def shares(folder, **columns):
    """Shares of images that are named rightly, by model and seed."""
    lines = []
    for model, seeds in read(f"{folder}/rows.json").items():
        for seed, row in seeds.items():
            found = [_shares.share(row, name) for name in columns.values()]
            lines.append(
                [MODELS[model], seed, f"{row['parameters']:,}", str(row["epochs"]),
                 f"{100 * row['held_out']:.2f}", *found, f"{row['minutes']:.0f}"]
            )  # fmt: skip
    titles = [f"{name.replace('_', ' ')} %" for name in columns]
    columns = ["model", "seed", "parameters", "epochs", "held out %", *titles, "minutes"]
    return table(columns, lines)


def viewpoints(split):
    """Errors on familiar and on novel viewpoints, over seeds."""
    lines = []
    for model, seeds in read(f"viewpoints/{split}/rows.json").items():
        rows = list(seeds.values())
        errors = [[1 - row[view] for row in rows] for view in ("familiar", "novel")]
        lines.append(
            [MODELS[model], str(len(rows)), f"{rows[0]['parameters']:,}",
             _shares.spread([row["held_out"] for row in rows]), *map(_shares.spread, errors),
             cell([row["minutes"] for row in rows], 2)]
        )  # fmt: skip
    columns = ["model", "seeds", "parameters", "held out %", "familiar error %", "novel error %"]
    return table([*columns, "minutes"], lines)


def em_ablation():
    """One part of matrix capsules changed at a time."""
    lines = []
    for name, seeds in read("em_ablation/mnist/rows.json").items():
        rows = list(seeds.values())
        held_out = _shares.spread([row["held_out"] for row in rows])
        memory = f"{max(row['extra_mb'] for row in rows):.0f}"
        lines.append([name, str(len(rows)), held_out, memory])
    return table(["row", "seeds", "held out %", "memory, MB"], lines)


def iterations():
    """Training loss and accuracy by the number of routing iterations."""
    lines = []
    kept = "routing_iterations/mnist/small/routing_iterations.json"
    for name, seeds in read(kept).items():
        last = [Metrics(row["history"][-1]) for row in seeds.values()]
        names = ("loss", "val_accuracy", "seconds")
        lines.append([name, str(len(last)), *(cell([row[key] for row in last]) for key in names)])
    return table(["iterations", "seeds", "training loss", "held-out accuracy", "s/epoch"], lines)


def bars():
    """The bars of the speed benchmarks."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(ROWS.glob("*.json"))}
    results.pop("sources", None)
    lines = [
        [row["what"], f"{row['measured']:.3g}", row["bar"], row["holds"]]
        for row in _bars.bars(results)
    ]
    return table(["measured", "value", "bar", "holds"], lines)


def speed(name, **columns):
    """Rows of one speed benchmark, with the columns that are named."""
    lines = []
    for row in read(f"{name}.json")["rows"]:
        values = [row.get(key) for key in columns.values()]
        lines.append([number(value) for value in values])
    return table([title.replace("_", " ") for title in columns], lines)


FORMS = {"form": "form", "time_ms": "ms", "memory_MB": "extra_mb"}
# Name to a function that makes the table, and the files of its rows.
TABLES = {
    **{
        f"claims {d} {domain}": (lambda d=d, domain=domain: claims(d, domain), f"claims/{d}.json")
        for d in DATASETS
        for domain in ("prior", "half_space", "posterior")
    },
    "signs": (signs, *(f"claims/{d}.json" for d in DATASETS)),
    "plain form": (plain_form, *(f"plain_form/{d}.json" for d in DATASETS)),
    "normalisation": (normalisation, *(f"plain_form/{d}.json" for d in DATASETS)),
    "agreement": (agreement, *(f"agreement/{d}.json" for d in DATASETS)),
    "whole codes": (whole_codes, *(f"whole_codes/{d}.json" for d in DATASETS)),
    "instantiation": (instantiation, *(f"instantiation/{d}.json" for d in DATASETS)),
    **{f"ladder {d}": (lambda d=d: ladder(d), f"ladder/{d}.json") for d in DATASETS},
    **{
        f"all images {d}": (lambda d=d: all_images(d), f"ladder/{d}-all.json") for d in DATASETS
    },
    "few images": (few_images, "few_images.json"),
    "start": (start, *(f"start/{d}.json" for d in STARTED)),
    **{f"comparison {d}": (lambda d=d: comparison(d), f"comparison/{d}.json") for d in DATASETS},
    "pretrained": (pretrained, *(f"pretrained/{d}.json" for d in DATASETS)),
    "classifiers": (classifiers, "classifiers/rows.json"),
    "pairs": (lambda: shares("pairs_muon", both_of_a_pair="pairs", single_digits="digits"),
              "pairs_muon/rows.json"),
    "cifar": (lambda: shares("cifar", test="test"), "cifar/rows.json"),
    "affnist": (lambda: shares("affnist", translated="translated", affine="affNIST-like"),
                "affnist/rows.json"),
    **{
        f"viewpoints {split}": (lambda split=split: viewpoints(split),
                                f"viewpoints/{split}/rows.json")
        for split in ("azimuth", "elevation")
    },
    "em ablation": (em_ablation, "em_ablation/mnist/rows.json"),
    "routing iterations": (iterations, "routing_iterations/mnist/small/routing_iterations.json"),
    "bars": (bars, *(f"{name}.json" for name in (
        "cd_step", "routing_layer", "em_routing", "convolutions", "growth", "quality", "memory",
        "pipeline"))),
    "cd step": (lambda: speed("cd_step", images="images", inputs="inputs", **FORMS,
                              speedup="speedup_over_best"), "cd_step.json"),
    "routing layer": (lambda: speed("routing_layer", routing="routing", direction="direction",
                                    **FORMS), "routing_layer.json"),
    "em routing": (lambda: speed("em_routing", types="types", parents="parents",
                                 iterations="iterations", direction="direction", **FORMS),
                   "em_routing.json"),
    "convolutions": (lambda: speed("convolutions", filters="case", direction="direction",
                                   reference_ms="plain_ms", fast_ms="fast_ms", ratio="ratio"),
                     "convolutions.json"),
    "serving": (lambda: speed("serving", call="case", batch="batch", time_ms="ms",
                              images_per_second="images_per_s"), "serving.json"),
    "memory": (lambda: speed("memory", model="family", stage="stage", images="images",
                             memory_MB="anon_mb", ratio="ratio"), "memory.json"),
    "stages": (lambda: speed("pipeline", stage="stage", step_ms="step_ms",
                             images_per_second="images_per_s", memory_MB="peak_mb",
                             minutes="minutes_full"), "pipeline.json"),
}  # fmt: skip


def caption(files):
    """Return the table below a table: its rows, and how they were made."""
    known, made = read("sources.json"), {}
    for name in files:
        source = known[name]
        key = source["command"], source["commit"], source["date"]
        made.setdefault(key, []).append(f"[{name}](../benchmarks/{name})")
    lines = [[", ".join(links), f"`{key[0]}`", *key[1:]] for key, links in made.items()]
    return table(["rows", "made by", "commit", "date"], lines)


def filled(text):
    """Return the text of a page with its tables filled in."""

    def block(match):
        make, *files = TABLES[match[2]]
        return f"{match[1]}\n{make()}\n\n{caption(files)}\n\n{match[3]}"

    return BLOCK.sub(block, text)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def stale():
    """Return the files of rows that are not those of sources.json."""
    known = read("sources.json")
    files = {file for _, *files in TABLES.values() for file in files}
    return sorted(f for f in files if known.get(f, {}).get("sha256") != sha256(ROWS / f))


def git(*words, root=ROOT):
    """Return the output of a command of git, or None if it fails."""
    found = subprocess.run(("git", "-C", root, *words), capture_output=True, text=True)
    return None if found.returncode else found.stdout.strip()


# Folders of the package that compute what rows say.
MEASURED = [f"keras_capsule_poe/{name}" for name in ("core", "layers", "models", "evaluation")]


def script_of(name, command):
    """Return the script that made a file of rows.

    >>> script_of("mnist.json", "python benchmarks/research/vae.py FILE")
    'benchmarks/research/vae.py'
    >>> script_of("cd_step.json", "make bench")
    'benchmarks/cd_step.py'
    """
    found = re.search(r"benchmarks/[\w/]+\.py", command)
    return found[0] if found else f"benchmarks/{Path(name).stem}.py"


def older(sources, root=ROOT):
    """Return [file, commit, date, commits to its script, commits to the package] of older rows.

    The commits are those after the rows' own, or "unknown" if this repository does not have it.
    """
    lines = []
    for name, source in sources.items():
        commit = source["commit"]
        paths = [script_of(name, source["command"])], MEASURED
        counts = [
            git("rev-list", "--count", f"{commit}..HEAD", "--", *each, root=root) or "unknown"
            for each in paths
        ]
        if counts != ["0", "0"]:
            lines.append([name, commit, source["date"], *counts])
    return sorted(lines, key=lambda line: line[2])


def update_sources():
    """Note commit and date of new rows."""
    known = read("sources.json")
    commit = git("rev-parse", "--short", "HEAD")
    for name in stale():
        if name not in known:
            sys.exit(f"Add the command that makes {name} to docs/benchmarks/sources.json.")
        known[name] |= {
            "commit": commit, "date": str(datetime.date.today()), "sha256": sha256(ROWS / name),
        }  # fmt: skip
    (ROWS / "sources.json").write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a page differs"
    )
    parser.add_argument("--older", action="store_true", help="list rows older than their code")
    args = parser.parse_args()
    if args.older:
        columns = ["rows", "commit", "date", "commits to its script", "commits to the package"]
        print(table(columns, older(read("sources.json"))))
        return
    if not args.check:
        # Matplotlib is not needed to check.
        from _charts import charts

        update_sources()
        charts(CHARTS, read, DATASETS)
    old = {path: path.read_text() for path in sorted(PAGES.glob("*.md"))}
    changed = [path for path, text in old.items() if filled(text) != text]
    if args.check:
        wrong = [*map(str, changed), *stale()]
        sys.exit(f"Run `python benchmarks/results.py`: {', '.join(wrong)}" if wrong else 0)
    for path in changed:
        path.write_text(filled(old[path]))


if __name__ == "__main__":
    main()
