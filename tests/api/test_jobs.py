"""Everyday jobs, each in as few lines as promised, imports not counted."""

import keras
import matplotlib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import keras_capsule_poe as kcp

pytestmark = [
    pytest.mark.filterwarnings("ignore::keras_capsule_poe.errors.TrainingWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
# Settings that make a job quick; they change none of its lines.
QUICK = {
    "capsules": 3,
    "compute": {"precision": "float32"},
    "autoencoder": {"filters": 4, "epochs": 1},
    "encoder": {"dim": 4, "epochs": 1},
    "decoder": {"epochs": 1},
}
JOBS = {
    "train on an array": (2, "model = kcp.ProductOfExpertCapsules()\nmodel.fit(x)"),
    "train on a data set": (1, "model = kcp.train('digits', limit=100)"),
    "draw": (1, "images = model.sample(8).images"),
    "draw from one capsule": (1, "images = model.sample(8, capsule=2).images"),
    "encode": (1, "codes = model.encode(x)"),
    "decode": (1, "images = model.decode(codes).images"),
    "reconstruct": (1, "images = model.reconstruct(x).images"),
    "look at samples": (1, "figure = model.plot_samples()"),
    "look at a capsule": (1, "figure = model.plot_capsule(2)"),
    "look at reconstructions": (1, "figure = model.plot_reconstructions(x[:5])"),
    "look at a traversal": (1, "figure = model.plot_traversal(capsule=2)"),
    "load a trained model": (1, "loaded = kcp.load('mnist')"),
    "classify": (
        3,
        "net = kcp.CapsNet.from_recipe('small', (28, 28, 1), 10); net.compile('adam')\n"
        "net.fit(x, y, verbose=0)\n"
        "probabilities = net.predict(x, verbose=0)",
    ),
    "features of an RBM": (
        1,
        "pipe = make_pipeline(kcp.sklearn.RBMTransformer(20), LogisticRegression()).fit(X, y)",
    ),
}


@pytest.fixture(scope="module")
def names():
    train = kcp.data.load_images("digits", limit=100).train
    flat = (train.images.reshape(100, -1) / 255).astype("float32")
    return {
        "kcp": kcp, "x": train.images, "y": train.labels, "X": flat,
        "make_pipeline": make_pipeline, "LogisticRegression": LogisticRegression,
    }  # fmt: skip


@pytest.mark.long
def test_each_takes_few_lines(names):
    quick = ", ".join(f"{name}={value!r}" for name, value in QUICK.items())
    for job, (lines, source) in JOBS.items():
        assert len(source.splitlines()) <= lines, job
        source = source.replace("Capsules()", f"Capsules({quick})")
        source = source.replace("limit=100", f"limit=100, verbose=0, {quick}")
        exec(compile(source.replace("fit(x)", "fit(x, verbose=0)"), job, "exec"), names)
    assert names["images"].shape == (100, 28, 28, 1)
    assert isinstance(names["figure"], matplotlib.figure.Figure)
    assert isinstance(names["loaded"], kcp.ProductOfExpertCapsules)
    assert names["probabilities"].shape == (100, 10)
    assert isinstance(names["net"], keras.Model)
    assert names["pipe"].predict(names["X"]).shape == np.shape(names["y"])
