"""Comparisons of classifiers: what they keep, what they print, and that their cases exist."""

import doctest
from argparse import Namespace

import _classifiers as shared
import _shares as shares
import cifar
import classifiers
import numpy as np
import pytest

from keras_capsule_poe.data import ImageSet

ARGS = Namespace(set=[], epochs=None, limit=None)


def figures(right):
    return shares.shares("test", np.array(right, bool))


def test_the_examples():
    assert doctest.testmod(shared).failed == doctest.testmod(shares).failed == 0


def test_pairs_are_judged_as_pairs_and_as_digits():
    """The model names 0 and 1, the true classes are 0 and 1, and 0 and 2."""

    class Says:
        def classify(self, images):
            return {"probabilities": np.array([[0.9, 0.8, 0.1]] * images.shape[0], "f4")}

    labels = np.array([[0, 1], [2, 0]])
    test = ImageSet(np.zeros((2, 8, 8, 1), np.uint8), labels)
    found = classifiers.judge(Says(), Namespace(test=test))
    assert (found["test"], found["digit_error"], found["test_images"]) == (0.5, 0.25, 2)
    alone = ImageSet(test.images, labels[:, 0])
    assert "digit_error" not in classifiers.judge(Says(), Namespace(test=alone))


def test_every_case_is_one_of_the_family():
    cases = [classifiers.case_of(ARGS, case, seed=3) for case in classifiers.CASES]
    assert {case.seed for case in cases} == {3}
    assert len({str(case.to_dict()) for case in cases}) == len(cases)
    for case in (*cases[:3], cases[-1]):
        case.check()
    settings = {**cifar.SETTINGS, **shared.MODELS["uniform"]}
    config = shared.config_of(ARGS, "cifar10", "paper", settings, 0)
    config.set("capsnet.filters", 4)
    config.check((32, 32, 3))
    with pytest.raises(SystemExit, match="A case is DATASET:RECIPE:EPOCHS.*Received: mnist:small"):
        classifiers.case_of(ARGS, "mnist:small", seed=0)
    with pytest.raises(SystemExit, match="capsnet or matrix-capsules. Received: rbm"):
        classifiers.case_of(ARGS, "mnist:rbm/small:5", seed=0)


def test_what_the_command_line_sets_comes_last():
    args = Namespace(set=["epochs=4", "held_out=20"], epochs=None, limit=50)
    config = classifiers.case_of(args, "digits:small:7:coefficients=uniform,filters=8", seed=0)
    net = config.capsnet
    assert (net.epochs, net.filters, net.coefficients) == (4, 8, "uniform")
    assert (config.held_out, config.limit) == (20, 50)


def test_rows_are_measured_once(tmp_path, monkeypatch):
    """Again with other settings or arguments; kept by another comparison meanwhile, they stay."""
    calls = []

    def in_child(function, config, folder, judge, args, load):
        calls.append((config.seed, folder.name, args))
        return figures([True, False])

    monkeypatch.setattr(shared.children, "in_child", in_child)
    config = classifiers.case_of(ARGS, "digits:small:1", seed=0)
    rows, other = shared.Rows(tmp_path), shared.Rows(tmp_path)
    rows.figures("a", config, None, "x")
    assert rows.figures("a", config, None, "x")["test"] == 0.5 and len(calls) == 1
    rows.figures("a", config, None, "y")
    config.set("capsnet.filters", 8)
    rows.figures("a", config, None, "y")
    assert len(calls) == 3 and len({folder for _, folder, _ in calls}) == 2
    other.figures("b", config, None)
    assert set(shared.Rows(tmp_path).rows) == {"a", "b"}
    config.set("capsnet.filters", 9)
    assert shared.Rows(tmp_path, measures=False).figures("b", config, None) is None


def test_the_comparison_by_hand():
    """Four images that only one names and one that only the other does: p = 12/32."""
    one, other = figures([1, 1, 1, 1, 0, 1]), figures([0, 0, 0, 0, 1, 1])
    found = shares.comparison({"capsules": {0: one}, "cnn": {0: other, 1: other}}, "test")
    assert found == ("test, seed 0: capsules alone right 4, cnn alone right 1, p = 0.38 (McNemar)")
