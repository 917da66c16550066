"""Files of a former version, for `tests/compatibility`: a finished and a killed run of each model.

Run it with the Python and the package of that version, in a checkout of it:
    cd CHECKOUT && .venv/bin/python PATH/tools/make_fixtures.py COMMIT --out PATH/tests/fixtures

It writes `COMMIT-MODEL.tar.xz` with
    finished/        a model folder, without pictures
    killed/          a run with the same options that SIGKILL ended in the middle of a stage
    options.json     the options of both after `capspoe`, FOLDER in place of the model folder
    results.npz      `images`, and what each endpoint of the finished model gives: ENDPOINT.NAME
    layers.keras     of a capsule network: a small network with decoders, as `finished` has none
    layers.npz       its results for `codes`: `lengths`, `dense` and `conv`
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

# Of the version that is installed.
sys.path.insert(0, "benchmarks")
# Stage and step in which a run is killed, and settings that keep the files small.
KILLED = {
    "capsules": ("encoder", 9, ()),
    "neurons": ("experts", 9, ()),
    "rbm": ("rbm", 9, ()),
    "capsnet": ("capsnet", 9, ("decoder=none", "dim=4", "primary_dim=4")),
    "matrix-capsules": ("matrix", 9, ("decoder=none",)),
}
EPOCHS = 4
LEFT_OUT = ("pictures", ".lock", ".png")


def options(model, folder):
    """Options after `capspoe` that train a tiny model; the last of two equal settings holds."""
    import _tiny

    stage, _, settings = KILLED[model]
    found = _tiny.train_options(model, folder, epochs=EPOCHS)
    known = {setting.partition("=")[0] for setting in settings}
    found = [word for word in found if word.partition("=")[0].partition(".")[2] not in known]
    # A `--set` whose setting has gone.
    pairs = zip(found, [*found[1:], ""])
    found = [word for word, after in pairs if word != "--set" or "=" in after]
    return found + [word for name in settings for word in ("--set", f"{stage}.{name}")]


def train(model, folder, kill=False):
    """Train in a process of its own, as its threads and graphs would stay in this one."""
    command = [sys.executable, __file__, "train", model, "--out", str(folder)]
    code = subprocess.run([*command, *(["--kill"] if kill else [])], timeout=600).returncode
    if code != (-signal.SIGKILL if kill else 0):
        raise SystemExit(f"{model} ended with {code}.")


def train_here(model, folder, kill):
    """Train, and with `kill` end this process right after a checkpoint."""
    from keras_capsule_poe.cli.main import main
    from keras_capsule_poe.training.checkpoints import Checkpoints

    stage, last, _ = KILLED[model]
    save = Checkpoints.save

    def save_and_die(checkpoints, step, state):
        save(checkpoints, step, state)
        if stage == checkpoints.folder.parent.name and step >= last:
            os.kill(os.getpid(), signal.SIGKILL)

    words = options(model, folder)
    if kill:
        Checkpoints.save = save_and_die
        words[words.index("--checkpoint-seconds") + 1] = "1e-9"
    main(words, standalone_mode=False)


def results(path):
    """Results of each endpoint of a model for fixed images, codes and seeds."""
    import keras
    from _tiny import SETTINGS  # noqa: F401, which makes the classes known to Keras

    import keras_capsule_poe

    getattr(keras_capsule_poe, "import_all", lambda: None)()
    model = keras.models.load_model(path, compile=False)
    random = np.random.default_rng(0)
    images = random.uniform(size=(5, *model.image_shape)).astype("float32")
    values = {"images": images, "capsule": 1, "n": 5, "steps": 2, "seed": 3}
    found = {"images": images}
    for name, arguments in model.ENDPOINTS.items():
        if "capsules" in arguments:
            shape = 5, model.capsules, model.dim
            values["capsules"] = found["capsules"] = random.normal(size=shape).astype("float32") / 8
        given = getattr(model, name)(*(values[argument] for argument in arguments))
        found |= {f"{name}.{key}": np.asarray(value) for key, value in dict(given).items()}
    return found


def write_layers(path):
    """Save a small untrained network with both decoders; return what it gives for some codes."""
    import keras

    from keras_capsule_poe import layers

    keras.utils.set_random_seed(1)
    codes = keras.Input((10, 4))
    masked = layers.CapsuleMask()(codes)
    dense = layers.DenseDecoder((8, 8, 1), units=(6, 6))(masked)
    conv = layers.ConvDecoder((8, 8, 1), filters=4)(masked)
    network = keras.Model(codes, [layers.CapsuleLength()(codes), dense, conv])
    network.save(path)
    values = np.random.default_rng(0).normal(size=(5, 10, 4)).astype("float32")
    lengths, *images = network.predict(values, verbose=0)
    return {"codes": values, "lengths": lengths, "dense": images[0], "conv": images[1]}


def pack(model, commit, out):
    """Train a model twice and write its archive."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        train(model, folder / "finished")
        train(model, folder / "killed", kill=True)
        for checkpoints in (folder / "killed").glob("*/checkpoints"):
            for older in sorted(checkpoints.glob("step-*"))[:-1]:
                shutil.rmtree(older)
        (folder / "options.json").write_text(json.dumps(options(model, "FOLDER")))
        np.savez(folder / "results.npz", **results(folder / "finished" / "model.keras"))
        if model == "capsnet":
            np.savez(folder / "layers.npz", **write_layers(folder / "layers.keras"))
        with tarfile.open(out / f"{commit}-{model}.tar.xz", "w:xz", preset=9) as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name, filter=_kept)
    print(model, (out / f"{commit}-{model}.tar.xz").stat().st_size)


def _kept(entry):
    """Return an entry of the archive without its owner, or None to leave it out."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if entry.name.endswith(LEFT_OUT) else entry


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", help="first seven digits, or `train` in a process of its own")
    parser.add_argument("models", nargs="*", help="of all: " + ", ".join(KILLED))
    parser.add_argument("--out", type=Path, required=True, help="folder of the archives")
    parser.add_argument("--kill", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.commit == "train":
        return train_here(args.models[0], args.out, args.kill)
    for model in args.models or KILLED:
        pack(model, args.commit, args.out.resolve())


if __name__ == "__main__":
    main()
