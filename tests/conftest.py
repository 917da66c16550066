"""What tests of several rooms share.

A small model of random maps, a tiny one that is trained once through the command line, and
autodiff shut off.
"""

import collections
import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys

# As the commands do. Without it, on processors without AVX512, a softmax over logits of 1e20 has
# a largest number of 1 - 2^-24, whose gradient overflows.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# Programs on Jax spend their time here in compiling what then runs once.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import click
import filelock
import numpy as np
import pytest
from click.testing import CliRunner

CAPSULES, DIM = 5, 3
TINY = [
    "--limit", "96",
    "--epochs", "2",
    "--batch-size", "48",
    "--set", "autoencoder.filters=8",
    "--set", "encoder.capsules=3",
    "--set", "encoder.dim=4",
    "--set", "compute.precision=float32",
    # The reference form and few iterations have the smaller graph, which takes the time here.
    "--set", "encoder.routing_iterations=2",
    "--set", "compute.implementation=reference",
]  # fmt: skip


# Files that take longest begin first, so that no worker is left with one at the end. To load a
# SavedModel takes ten times as long after hundreds of graphs were traced.
LONGEST = (
    "test_former_versions",
    "test_fit",
    "test_fit_again",
    "test_docstrings",
    "test_portable",
    "test_moved_folder",
    "test_images",
    "test_endpoints",
    "test_train_images",
    "test_labels",
    "test_classifiers",
    "test_inputs",
    "test_estimators",
    "test_options",
    "test_train",
    "test_callbacks",
    "test_strategies",
)


def pytest_configure(config):
    """Imports TensorFlow as the commands do where tests run, not where `-n` hands them out."""
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        from keras_capsule_poe.cli.terminal import import_tensorflow

        try:
            import_tensorflow()
        except click.UsageError as error:
            raise pytest.UsageError(error.message) from None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    cases = collections.Counter()
    for item in items:
        some = item.get_closest_marker("some")
        if some and not item.get_closest_marker("long"):
            test = item.path, item.originalname
            if cases[test] % some.args[0]:
                item.add_marker("long")
            cases[test] += 1

    def place(item):
        name = item.path.stem
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)


def pytest_collection_finish():
    """What is imported stays: looking for garbage in it anew took a fifteenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def product(
    shape=(20, 20, 1),
    dtype=None,
    implementation="reference",
    stddev=0.5,
    scale=2.0,
    target_length=0.5,
    use_bias=False,
):
    """A built product of five experts of three dimensions, whose maps and statistics are not tiny.

    Its primary capsules are adapted to the features of `pixels(50, shape)`.
    """
    import keras

    from keras_capsule_poe import (
        CapsuleDecoder,
        CapsuleEncoder,
        CapsulePoE,
        ConvAutoencoder,
        PrimaryCapsules,
        ProductOfExpertCapsules,
    )
    from keras_capsule_poe.models.capsule_poe.layers import GaussianMixtures

    keras.utils.set_random_seed(1)
    autoencoder = ConvAutoencoder(filters=8, dtype=dtype)
    autoencoder.build((None, *shape))
    primary = PrimaryCapsules(4, target_length=target_length, dtype=dtype)
    primary.adapt([np.asarray(autoencoder.encode(pixels(50, shape)), "float32")])
    options = {
        "kernel_initializer": keras.initializers.RandomNormal(stddev=stddev, seed=2),
        "coefficient_sum": scale,
        "implementation": implementation,
        "dtype": dtype,
    }
    affine = {"use_bias": use_bias, "bias_initializer": keras.initializers.RandomNormal(seed=4)}
    experts = CapsulePoE(CAPSULES, DIM, use_routing_bias=True, **affine, **options)
    encoder = CapsuleEncoder(experts, dtype=dtype)
    primaries = CapsulePoE(primary.capsules, 4, **options)
    decoder = CapsuleDecoder(primaries, dtype=dtype)
    visited = GaussianMixtures(CAPSULES, 3, CAPSULES * DIM, rank=2, tied=True)
    model = ProductOfExpertCapsules(autoencoder, primary, encoder, decoder, visited, dtype=dtype)
    model.build((None, *shape))
    random = np.random.default_rng(3)
    model.mean_direction.assign(random.normal(size=(CAPSULES, DIM)))
    # A third component of weight zero is never drawn.
    weights = np.array([[1.0, 3.0, 0.0]] * CAPSULES)
    means = 0.3 * random.normal(size=(CAPSULES, 3, CAPSULES * DIM))
    factors = 0.01 * random.normal(size=(CAPSULES, 1, CAPSULES * DIM, 2))
    visited.set_weights([weights, means, factors])
    encoder.whitening.center.assign(0.1 * random.normal(size=(CAPSULES, DIM)))
    encoder.whitening.whitening.assign(random.normal(size=(CAPSULES, DIM, DIM)))
    return model


def pixels(n=4, shape=(20, 20, 1), seed=0):
    """Random images (n, H, W, C), pixels in [0, 1]."""
    return np.random.default_rng(seed).uniform(size=(n, *shape)).astype("float32")


@pytest.fixture
def run_on(tmp_path):
    """Runs a program on another of Keras' backends, in a process and a folder of its own."""

    def run(backend, program):
        if importlib.util.find_spec(backend) is None:
            pytest.skip(f"{backend} is not installed")
        program = f"import keras\nassert keras.backend.backend() == '{backend}'\n{program}"
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]

    return run


@pytest.fixture(scope="session")
def small_product():
    """Function that builds a small product, see `product`."""
    return product


@pytest.fixture(scope="session")
def random_pixels():
    """Function that gives random images, see `pixels`."""
    return pixels


def refused_arguments(version):
    """Calls each endpoint of a SavedModel, then with each argument out of its range: an error.

    Returns:
        dict, of each endpoint the arguments that were refused.
    """
    import tensorflow as tf

    card = json.loads((version / "model_card.json").read_text())
    model, found = tf.saved_model.load(str(version)), {}
    images = np.full((2, *card["image_shape"]), 0.5, "float32")
    codes = np.zeros((2, *card.get("capsules", ())), "float32")
    first = card.get("capsules", (0,))[0]
    good = {"images": images, "capsules": codes, "capsule": 0, "n": 2, "steps": 1, "seed": 0}
    bad = {
        "images": (255 * images, images - 1, images * np.nan),
        "capsules": (codes + np.nan, codes - np.inf),
        "capsule": (-1, first, 2**31 - 1),
        "n": (-1, -(2**31)),
        "steps": (-1,),
    }
    for name, arguments in card["endpoints"].items():
        call = getattr(model, name)
        for key, value in call(*(good[argument] for argument in arguments)).items():
            assert np.isfinite(value.numpy()).all(), (name, key)
        for argument in bad.keys() & set(arguments):
            for value in bad[argument]:
                with pytest.raises(tf.errors.InvalidArgumentError, match=f"`{argument}` must be"):
                    call(*({**good, argument: value}[each] for each in arguments))
        found[name] = bad.keys() & set(arguments)
    return found


@pytest.fixture(scope="session")
def refused():
    """Function of a SavedModel's folder, see `refused_arguments`."""
    return refused_arguments


@pytest.fixture(autouse=True)
def no_determinism_left():
    """What a test trained with `--deterministic` does to its process ends with it.

    Else later tests could neither draw without a seed nor compile with XLA.
    """
    yield
    if "tensorflow" in sys.modules:
        from tensorflow.python.framework.config import disable_op_determinism

        disable_op_determinism()


@pytest.fixture
def no_autodiff(monkeypatch):
    """Both ways into TensorFlow's autodiff raise."""
    import tensorflow as tf

    def refuse(*_, **__):
        raise AssertionError("autodiff was called")

    monkeypatch.setattr(tf, "gradients", refuse)
    monkeypatch.setattr(tf.GradientTape, "__enter__", refuse)


@pytest.fixture(scope="session")
def capspoe():
    """Runs a `capspoe` command line; returns click's result."""
    from keras_capsule_poe.cli.main import main

    def run(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="session")
def tiny():
    """The options of the tiny model."""
    return TINY


@pytest.fixture(autouse=True)
def unmeasured(request, monkeypatch):
    """Plans measure no steps, which takes long, except in tests that are marked `measured`."""
    if "measured" not in request.keywords:
        monkeypatch.setattr("keras_capsule_poe.training.plan.measure", lambda config, data: {})


@pytest.fixture(scope="session")
def tiny_model(capspoe, tmp_path_factory):
    """Folder of a model of three capsules, trained on 96 digits for seconds by one worker."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    trained = shared / "tiny-model"
    with filelock.FileLock(shared / "tiny-model.lock"):
        if not trained.exists():
            folder = tmp_path_factory.mktemp("training") / "digits"
            result = capspoe("train", "--dataset", "digits", "--model-dir", folder, *TINY)
            assert result.exit_code == 0, result.output
            shutil.copytree(folder, trained)
    # Some tests write in it.
    return shutil.copytree(trained, tmp_path_factory.mktemp("models") / "digits")


def evaluated(purity=0.9, accuracy=0.5):
    """Figures as `evaluate` gives them: MNIST meets its targets but for the clusterings."""
    judged = {
        "confident": 0.9,
        "class_coverage": 9,
        "purity": purity,
        "coverage": 0.5,
        "FID": 4.0,
    }
    return {
        "reconstruction": {"primary_capsules": 0.1},
        "probe": {"capsules": 0.97, "pixels": 0.9},
        "neighbours": {},
        "clustering": {
            "merged_capsules": {"accuracy": accuracy, "nmi": 0.9},
            "graph": {"accuracy": 0.4, "nmi": 0.95},
        },
        "samples": {
            "classifier_accuracy": 0.99,
            "real": {**judged, "coverage": 1.0},
            **{name: judged for name in ("posterior", "prior", "joint")},
            "full_gaussian": {"FID": 16.0},
            "gaussian_mixture": {"FID": 5.0},
        },
    }


@pytest.fixture(scope="session")
def figures():
    """Function that gives figures of an evaluation, see `evaluated`."""
    return evaluated


@pytest.fixture(scope="session")
def printed():
    """Runs a program that prints a JSON dict in each line; all of them as one dict."""

    def run(*command):
        command = [sys.executable, *command]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert shown.returncode == 0, shown.stderr[-3000:]
        found = {}
        for line in shown.stdout.splitlines():
            found |= json.loads(line)
        return found

    return run
