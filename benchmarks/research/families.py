"""One table of what trained models of all families draw, beside the baselines.

Each kind of draw of each model, 2,000 of them, is judged against as many test images, as `capspoe
evaluate` does, by a classifier of the data set. The autoencoder, reality and the baselines, which
need features, are of the first model, and the variational autoencoder is trained for as long as it
was. `--beside` says which of them; alone, none. Usage:
python benchmarks/research/families.py NAME=MODEL_DIR [NAME=MODEL_DIR ...] [--samples N]
           [--beside [NAME ...]] [--json FILE]
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

COLUMNS = {
    "recognised": "recognised",
    "purity": "purity",
    "modal_classes": "modal classes",
    "frechet": "Frechet",
    "precision": "precision",
    "recall": "recall",
    "coverage": "coverage",
}
DRAWS = ("prior", "posterior", "joint")
SHARED = (
    "real", "autoencoder", "variational_autoencoder", "gaussian_mixture", "boltzmann_machine",
    "full_gaussian", "diagonal_gaussian",
)  # fmt: skip


def judged(models, data, samples, seconds, shared=SHARED):
    """Rows of the table as they come: names and figures.

    Args:
        models: dict of `GenerativeModel` by name.
        data: `ImageData` with labels.
        samples: int, of each kind.
        seconds: float, what the variational autoencoder may take.
        shared: Which of the rows of the first model, beside those of its draws.
    """
    from keras_capsule_poe.evaluation.baselines import baseline_set
    from keras_capsule_poe.evaluation.classifier import evaluation_classifier
    from keras_capsule_poe.evaluation.samples import distances, purity, recognition
    from keras_capsule_poe.evaluation.sources import image_sources

    classifier = evaluation_classifier(data.train)
    real, _ = classifier(data.test.images[:samples])
    for number, (name, model) in enumerate(models.items()):
        baselines = baseline_set("trained", model, vae_seconds=seconds)
        sources = image_sources(model, data, samples, samples, 0, baselines)
        for kind in (*(shared if number == 0 else ()), *DRAWS):
            if kind not in sources:
                continue
            begun = time.perf_counter()
            images, capsule = sources[kind]()
            features, classes = classifier(images)
            found = {**recognition(classes), **distances(real, features)}
            if capsule is not None:
                found |= purity(classes, capsule)
            found["seconds"] = time.perf_counter() - begun
            yield f"{name}, {kind}" if kind in DRAWS else kind.replace("_", " "), found


def line(name, figures):
    """A row of the table in Markdown.

    Examples:

    >>> line("a", {"recall": 0.25, "modal_classes": 9})
    '| a | - | - | 9 | - | - | 0.250 | - |'
    """
    cells = (_cell(figures.get(column)) for column in COLUMNS)
    return f"| {name} | " + " | ".join(cells) + " |"


def _cell(value):
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:#.3g}"


def main():
    from keras_capsule_poe.cli.models import load_model, load_run_data, own_seconds

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL_DIR")
    parser.add_argument("--samples", type=int, default=2_000)
    parser.add_argument("--beside", nargs="*", choices=SHARED, default=SHARED, metavar="NAME")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    folders = {name: Path(path) for name, _, path in (text.partition("=") for text in args.models)}
    data = load_run_data(next(iter(folders.values())))
    models = {name: load_model(folder) for name, folder in folders.items()}
    print("| | " + " | ".join(COLUMNS.values()) + " |\n" + "|---" * (1 + len(COLUMNS)) + "|")
    rows = {}
    seconds = own_seconds(next(iter(folders.values())))
    for name, figures in judged(models, data, args.samples, seconds, args.beside):
        rows[name] = figures
        print(line(name, figures), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
