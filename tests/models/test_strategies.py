"""Under a strategy of Keras, models learn on two devices what one device does, or say why not.

Rejected: a reconstruction or a regularizer that counts once for each device, sums in place of
means, gradients that are clipped in parts, noise that each device draws for itself, copies of
weights that differ, and metrics of one device.
"""

import re
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("strategies_program.py")
# Sums of float32 numbers in another order, over three steps.
TOLERANCE = 1e-6
# Over more steps, with optimizers that divide by the size of gradients.
MANY_STEPS = 1e-4
FEW = ("cd",)
MORE = ("capsnet", "encoder", "decoder", "neurons", "mixture", "pcd", "pt", "autoencoder",
        "efficient", "matrices", "convolutions", "one device", "three devices")  # fmt: skip
WHOLE = ("whole capsules", "whole neurons", "whole machine", "whole capsnet", "whole matrices")
REFUSED = {
    "numbers drawn for each call": r"numbers are drawn for each call. .* Use `BatchDropout`",
    "a state of its own": "a layer changes weights of its own. Received: several replicas",
    "a sum": "a loss is no mean over images. Received: .* reduction='sum'",
    "another strategy": "ConvClassifier must be used under a MirroredStrategy, .*CentralStorage",
    "a distributed dataset": "ConvClassifier .* give it a dataset that is not distributed",
    "strategy.run": "ConvClassifier .* train it by `fit` or `train_on_batch`",
    "several steps in one call": "`steps_per_execution` must be 1 for ConvClassifier",
    "an optimizer of one device": "ConvClassifier must be made and compiled, or loaded, inside",
    "a model of one device": "ConvClassifier must be made and compiled, or loaded, inside",
    "fit of parts inside of the scope": "Models are trained outside of `strategy.scope",
}


@pytest.fixture(scope="module")
def few(printed):
    return printed(PROGRAM, "refusals", *FEW)


@pytest.fixture(scope="module")
def more(printed):
    # A group of collectives keeps the number of devices that it began with.
    two = [name for name in MORE if name != "three devices"]
    return printed(PROGRAM, *two, *WHOLE) | printed(PROGRAM, "three devices")


@pytest.mark.parametrize("name", FEW)
def test_two_devices_learn_what_one_does(few, name):
    assert max(few[name]["weights"], *few[name]["metrics"].values()) < TOLERANCE


@pytest.mark.parametrize("name, message", REFUSED.items())
def test_what_cannot_be_is_refused(few, name, message):
    found = few[name]
    assert re.search(message, found) and "\n" not in found, found


@pytest.mark.long
@pytest.mark.parametrize("name", MORE)
def test_so_it_is_with_the_others(more, name):
    assert max(more[name]["weights"], *more[name]["metrics"].values()) < TOLERANCE


@pytest.mark.long
@pytest.mark.parametrize("name", WHOLE)
def test_models_of_settings_are_trained_on_the_devices_of_a_strategy(more, name):
    assert max(more[name]["weights"], *more[name]["metrics"].values()) < MANY_STEPS
