"""The pretrained models in saved_models/pretrained/: training, rounding, metrics, model card.

Each model is that of the default recipe. So that both fit into git, its weights are rounded to a
few bits and kept as float16, which compresses well. It is measured next to the model that was not
rounded. Training and evaluation take about 10 minutes a data set on two cores; what is done is not
done again.
Usage: python benchmarks/pretrain.py [--datasets NAME ...] [--folder build/pretrained]
"""

import argparse
import json
import shutil
import subprocess
import sys
import zipfile
from datetime import date
from pathlib import Path

import h5py
import numpy as np

from keras_capsule_poe.io.records import digest, read_record, write_record

ROOT = Path(__file__).parents[1]
PRETRAINED = ROOT / "saved_models" / "pretrained"
# Rows of the results pages.
ROWS = ROOT / "docs" / "benchmarks" / "pretrained"
# Bits of the mantissa of the weights; float16 has 10.
BITS = 4
# Weights that stay float32: a whitened weak axis is a small difference of large numbers.
EXACT = "frames"
STAGES = ("autoencoder", "features", "encoder", "decoder", "export")
LICENCES = {
    "mnist": "MNIST (LeCun, Cortes and Burges), CC BY-SA 3.0",
    "fashion_mnist": "Fashion-MNIST (Zalando SE), MIT",
}
SHOWN = {
    "confident": "confidently classified",
    "FID": "FID",
    "precision": "precision",
    "recall": "recall",
    "coverage": "coverage",
    "purity": "purity",
}


def capspoe(*words):
    """Run a command of this environment's `capspoe`."""
    command = "from keras_capsule_poe.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", command, *map(str, words)], check=True)


def rounded(values, bits=BITS):
    """Return float32 values as float16, matrices and larger arrays with few mantissa bits."""
    values = values.astype(np.float16)
    if values.ndim < 2:
        return values
    dropped = 10 - bits
    pattern = values.view(np.uint16).astype(np.uint32)
    # To the nearest, and to even in the middle.
    pattern += (1 << (dropped - 1)) - 1 + ((pattern >> dropped) & 1)
    return (pattern >> dropped << dropped).astype(np.uint16).view(np.float16)


def in_half_precision(source, target):
    """Copy a .keras file with its weights rounded and compressed; Keras loads it as it is."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            if not name.endswith(".h5"):
                new.writestr(name, old.read(name), zipfile.ZIP_DEFLATED)
                continue
            halved = target.with_suffix(".h5")
            with old.open(name) as file, h5py.File(file) as weights, h5py.File(halved, "w") as out:
                weights.visititems(lambda path, item, out=out: _copy(out, path, item))
                out.attrs.update(weights.attrs)
            new.write(halved, name)
            halved.unlink()


def _copy(out, path, item):
    if isinstance(item, h5py.Group):
        out.require_group(path).attrs.update(item.attrs)
        return
    values = item[()]
    if values.dtype == np.float32 and values.size and EXACT not in path:
        limit = np.finfo(np.float16).max
        assert np.abs(values).max() < limit, f"{path} exceeds half precision"
        values = rounded(values)
    packed = {"compression": 9, "shuffle": True} if values.ndim and values.size else {}
    out.create_dataset(path, data=values, **packed).attrs.update(item.attrs)


def publish(trained, target):
    """Write a trained run folder as a pretrained model: records, and rounded weights."""
    shutil.rmtree(target, ignore_errors=True)
    for name in ("run.json", *(f"{stage}/done.json" for stage in STAGES)):
        values = read_record(trained / name)
        if name == "export/done.json":
            in_half_precision(trained / "model.keras", target / "model.keras")
            values["files"]["model.keras"] = digest(target / "model.keras")
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        write_record(target / name, values, copy=False)


def card(name, metrics, commit):
    """Return the text of a model card."""
    rows = [("pretrained", "rounded"), ("not rounded", "full")]
    kinds = [("prior", "paper's Gaussian"), ("posterior", "where training was")]
    lines = [
        f"# {name}",
        "",
        f"Unsupervised capsules (`ProductOfExpertCapsules`), loaded by `kcp.load({name!r})`.",
        "",
        f"- Data: {LICENCES[name]}. 59,000 training images, without labels.",
        "- Recipe: the default. One seed, 0.",
        f"- Weights: float16 with {BITS} bits of mantissa in the file, float32 in memory.",
        f"- Made by `python benchmarks/pretrain.py --datasets {name}` at commit {commit}, "
        f"{date.today()}.",
        "- Licence of the weights: that of this package (MIT).",
        "",
        "10,000 samples of single capsules, measured with a classifier of this data set against "
        "the test images:",
        "",
        "| model | domain | " + " | ".join(SHOWN.values()) + " |",
        "|---|---|" + "---|" * len(SHOWN),
    ]
    for title, key in rows:
        for kind, domain in kinds:
            values = metrics[key]["samples"][kind]
            shown = " | ".join(f"{values[metric]:.3g}" for metric in SHOWN)
            lines.append(f"| {title} | {domain} | {shown} |")
    errors = [f"{title} {metrics[key]['reconstruction']['whole_code']:.3f}" for title, key in rows]
    lines += ["", f"Relative squared error of reconstructed test images: {', '.join(errors)}.", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=list(LICENCES), choices=LICENCES)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "pretrained")
    args = parser.parse_args()
    git = ("git", "-C", ROOT, "rev-parse", "--short", "HEAD")
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    for name in args.datasets:
        full = args.folder / name
        capspoe("train", "--dataset", name, "--model-dir", full)
        publish(full, PRETRAINED / name)
        metrics = {}
        for key, folder in (("rounded", PRETRAINED / name), ("full", full)):
            path = args.folder / f"{name}-{key}.json"
            if not path.exists():
                capspoe("evaluate", "--model-dir", folder, "--baselines", "none", "--json", path)
            metrics[key] = json.loads(path.read_text())
        kept = {
            key: {part: found[part] for part in ("samples", "reconstruction")}
            for key, found in metrics.items()
        }
        (PRETRAINED / name / "metrics.json").write_text(json.dumps(kept, indent=1) + "\n")
        (PRETRAINED / name / "README.md").write_text(card(name, metrics, commit))
        (ROWS / f"{name}.json").write_text(json.dumps(kept["rounded"], indent=1) + "\n")


if __name__ == "__main__":
    main()
