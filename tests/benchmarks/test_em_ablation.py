"""The ablation of matrix capsules: its rows, what it measures, and its table by hand."""

from argparse import Namespace

import _shares as shared
import em_ablation as script
import keras
import numpy as np
import pytest

from keras_capsule_poe import MatrixCapsNet
from keras_capsule_poe.data import ImageSet

TINY = ["filters=4", "primary_types=2", "types=2", "last_types=2", "size=2"]


def config_of(row, *more, seed=1):
    return script.config_of(script.arguments(["folder", *more]), row, seed)


def test_every_row_can_be_trained():
    for row in script.ROWS:
        config = config_of(row, "--epochs", "2", "--limit", "80", "--set", *TINY, "batch_size=8")
        config.check((48, 48, 2))
        net = config.matrix
        assert (config.seed, config.limit, net.epochs, net.batch_size) == (1, 80, 2, 8)
        assert (net.classes, net.augmentation) == (5, "norb")
        assert not set(config.differences(config_of("2 iterations"))) & set(config.idle())


def test_a_row_is_the_recipe_with_one_thing_changed():
    rows = {row: config_of(row, "--dataset", "mnist") for row in script.ROWS}
    recipe = rows.pop("2 iterations")
    assert (recipe.preset, recipe.dataset, recipe.matrix.routing_iterations) == (
        "small",
        "mnist",
        2,
    )
    changed = {row: set(config.differences(recipe)) for row, config in rows.items()}
    assert changed.pop("uniform") == {"matrix.routing_iterations", "matrix.inverse_temperature"}
    assert changed.pop("to classes alone") == {
        f"matrix.{name}"
        for name in ("inner_routing_iterations", "inverse_temperature", "class_temperature")
    }
    assert all(len(names) == 1 for names in changed.values())
    assert len({str(config.to_dict()) for config in rows.values()}) == len(rows)


@pytest.mark.parametrize("recipe, iterations", [("small", 2), ("paper", 3)])
def test_uniform_routing_ends_at_the_temperature_of_the_recipe(recipe, iterations):
    layers = []
    for row in ("uniform", "to classes alone", f"{iterations} iterations"):
        keras.utils.set_random_seed(0)
        config = config_of(row, "--recipe", recipe, "--set", *TINY)
        model = MatrixCapsNet.of_shape(config, (48, 48, 2))
        layers.append([layer.options for layer in model.capsule_layers[1:]])
        assert model.routing_iterations == {"uniform": 1}.get(row, iterations)
    for which, (uniform, to_classes, routed) in enumerate(zip(*layers, strict=True)):
        last = pytest.approx(routed.inverse_temperature_at(iterations - 1), rel=1e-12)
        for ours in (uniform, to_classes):
            assert ours.inverse_temperature_at(ours.routing_iterations - 1) == last
        assert uniform.routing_iterations == 1
        assert to_classes.routing_iterations == (iterations if which == 2 else 1)
        if which == 2:
            assert to_classes.inverse_temperature_at(0) == pytest.approx(
                routed.inverse_temperature_at(0), rel=1e-12
            )


def test_held_out_images_are_judged():
    class Says:
        def classify(self, images):
            return {"probabilities": np.array([[0.9, 0.8, 0.1]] * images.shape[0], "f4")}

    held_out = ImageSet(np.zeros((4, 8, 8, 1), np.uint8), np.array([0, 1, 0, 0]))
    found = script.judge(Says(), Namespace(held_out=held_out, test=None))
    assert (found["held_out"], found["held_out_images"]) == (0.75, 4)
    assert shared.unpacked(found, "held_out").tolist() == [True, False, True, True]


def test_the_table_by_hand():
    figures = {
        "uniform": {0: {"held_out": 0.5, "epochs": 3, "extra_mb": 1.0}},
        "3 iterations": {
            0: {"held_out": 0.75, "epochs": 3, "extra_mb": 7.0},
            1: {"held_out": 0.77, "epochs": 3, "extra_mb": 9.0},
        },
    }
    # The deviation of 75 and 77, with one degree of freedom less, is the root of two.
    assert script.table(figures).splitlines() == [
        "| row | seeds | held out % | epochs | memory MB |",
        "|---|---|---|---|---|",
        "| uniform | 1 | 50.00 | 3 | 1 |",
        "| 3 iterations | 2 | 76.00 ± 1.41 | 3 | 9 |",
    ]
