"""The comparison on novel viewpoints: what is held out, trained, judged, kept and printed.

Rejected: held-out images of solids that are trained on; novel ones among those trained on; errors
of familiar and of novel images exchanged, or shares that are right in their place.
"""

import json
from argparse import Namespace

import _classifiers as shared
import numpy as np
import pytest
import viewpoints as script
from _shares import shares, unpacked

from keras_capsule_poe.data import ImageSet
from keras_capsule_poe.data import viewpoints as solids

ARGS = Namespace(set=[], epochs=None, limit=None, until=0.9, dataset="viewpoints", recipe="small")


@pytest.fixture(scope="module")
def few():
    """Of the solids' 24,300 pairs as many as are seen from all sides in one light."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solids, "ELEVATIONS", np.array([50]))
        patch.setattr(solids, "LIGHTS", solids.LIGHTS[:1])
        patch.setattr(solids, "TESTED", 3)
        yield


@pytest.mark.parametrize("split", ["azimuth", "elevation"])
def test_both_networks_can_be_trained_and_are_of_one_size(split):
    sizes = []
    for model in script.MODELS:
        config = script.config_of(ARGS, split, model, seed=2)
        config.check((48, 48, 2))
        net = config.matrix
        assert (config.split, config.seed, net.until_accuracy, net.classes) == (split, 2, 0.9, 5)
        built = shared.registry.model_class(config.MODEL).of_shape(config, (48, 48, 2))
        sizes.append(shared.parameters(built))
    # A unit of the control's hidden layer that makes them equal has seven hundred of them.
    assert sizes[0] == 68_618 and abs(sizes[0] - sizes[1]) < 400


@pytest.mark.long
def test_the_last_solid_of_each_kind_is_held_out(few):
    data = script.load(script.config_of(ARGS, "azimuth", "cnn", seed=0))
    assert (len(data.train), len(data.held_out), len(data.test)) == (60, 30, 270)
    seen = {part: getattr(data, part).extras["instance"] for part in ("train", "held_out", "test")}
    assert set(seen["train"]) == {3, 4} and set(seen["held_out"]) == {5}
    assert set(seen["test"]) == {0, 1, 2}
    for part in (data.train, data.held_out):
        assert set(part.extras["label_azimuth"]) == {15, 16, 17, 0, 1, 2}
        assert set(part.labels) == set(range(5))


def test_views_are_judged_apart():
    """The model names 0: three of the four familiar images, and one of the two novel ones."""

    class Says:
        def classify(self, images):
            return {"probabilities": np.array([[0.9, 0.1]] * images.shape[0], "f4")}

    novel = {"novel": np.array([0, 1, 0, 0, 1, 0])}
    labels = np.array([0, 0, 1, 0, 1, 0])
    test = ImageSet(np.zeros((6, 8, 8, 2), np.uint8), labels, extras=novel)
    found = script.judge(Says(), Namespace(test=test))
    assert unpacked(found, "familiar").tolist() == [True, False, True, True]
    assert unpacked(found, "novel").tolist() == [True, False]


@pytest.mark.long
def test_a_network_is_trained_until_it_is_good_enough_and_kept(few, tmp_path, monkeypatch):
    """In this process: a fork of one with TensorFlow's threads would hang."""
    calls = []

    def in_child(function, *args):
        calls.append(args)
        return function(*args)

    monkeypatch.setattr(shared.children, "in_child", in_child)
    tiny = ["units=3", "batch_size=20", "compute.precision=float32", "matrix.learning_rate=0.01"]
    args = Namespace(**{**vars(ARGS), "set": tiny, "epochs": 3, "until": 0.01})
    args.seeds, args.models = [1], ["cnn"]

    def figures(measures):
        rows = shared.Rows(tmp_path, measures, script.load)
        return shared.every(args, rows, lambda *names: script.config_of(args, "azimuth", *names),
                            script.judge)  # fmt: skip

    found = figures(measures=True)["cnn"][1]
    history = json.loads(next(tmp_path.glob("cnn-1-*/matrix/history.json")).read_text())
    assert found["epochs"] == len(history) and found["held_out"] == history[-1]["val_accuracy"]
    # It stops at the first epoch that is good enough, or else goes on to the end.
    assert all(epoch["val_accuracy"] < 0.01 for epoch in history[:-1])
    assert (found["familiar_images"], found["novel_images"]) == (90, 180)
    assert figures(measures=False) == figures(measures=True) == {"cnn": {1: found}}
    assert len(calls) == 1


def test_the_tables_by_hand():
    def row(held_out, familiar, novel):
        return {"parameters": 68_618, "epochs": 7, "held_out": held_out, "minutes": 1.25,
                **shares("familiar", np.array(familiar, bool)),
                **shares("novel", np.array(novel, bool))}  # fmt: skip

    figures = {
        "capsules": {0: row(0.92, [1, 1, 1, 0], [1, 1, 1, 1]), 1: row(0.9, [1] * 4, [1, 1, 0, 0])},
        "cnn": {0: row(0.5, [0, 1, 1, 1], [0, 0, 0, 0])},
    }
    runs, means, short, tests = script.report(figures, until=0.9).split("\n\n")
    # Wilson's interval of one of four.
    line = (
        "| capsules | 0 | 68,618 | 7 | 92.00 | 25.00 (4.56 to 69.94) | 0.00 (0.00 to 48.99) | 1.2 |"
    )
    assert runs.splitlines()[2] == line
    # The deviation of 0 and a half, with one degree of freedom less, is the root of an eighth.
    assert means.splitlines() == [
        "| model | seeds | held out % | familiar error % | novel error % |",
        "|---|---|---|---|---|",
        "| capsules | 2 | 91.00 ± 1.41 | 12.50 ± 17.68 | 25.00 ± 35.36 |",
        "| cnn | 1 | 50.00 | 25.00 | 100.00 |",
    ]
    assert short == "cnn, seed 0: never named 90.00% of the held-out images rightly"
    assert "novel, seed 0: capsules alone right 4, cnn alone right 0, p = 0.12" in tests
