"""The table of iterations of routing: its rows, what is kept, and its numbers by hand."""

import keras
import numpy as np
import pytest
import routing_iterations as script

from keras_capsule_poe import CapsNet


def arguments(*more):
    return script.arguments(["folder", "--dataset", "digits", "--seeds", "0", "1", *more])


@pytest.mark.some(3)
@pytest.mark.parametrize("recipe", script.RECIPES)
def test_every_row_can_be_trained(recipe):
    args = arguments("--recipe", recipe, "--epochs", "2")
    for iterations in script.ITERATIONS:
        config = script.config_of(args, iterations, seed=1)
        config.check()
        assert config.seed == 1 and config.capsnet.epochs == 2


def built(config):
    # As the stage begins.
    keras.utils.set_random_seed(config.seed)
    return CapsNet.of_shape(config, (28, 28, 1))


def test_one_iteration_is_the_control():
    config = script.config_of(arguments(), 1, seed=0)
    control = script.config_of(arguments(), 3, seed=0)
    control.update({"capsnet.coefficients": "uniform"})
    control.given.clear()
    first, second = map(built, (config, control))
    assert (
        first.routing.get_config() == second.routing.get_config() and first.routing_iterations == 1
    )
    for a, b in zip(first.get_weights(), second.get_weights()):
        np.testing.assert_array_equal(a, b)


def test_rows_are_kept_as_long_as_their_settings_are():
    args = arguments("--iterations", "1", "3")
    histories = {0: [{"loss": 1.0}], 1: [{"loss": 2.0}]}
    done = {
        script.row_name(3): {
            str(seed): {
                "history": history,
                "settings": script.settings_of(script.config_of(args, 3, seed)),
            }
            for seed, history in histories.items()
        }
    }
    assert script.current(done, args) == {
        "1 iteration, uniform": {},
        "3 iterations": {str(seed): history for seed, history in histories.items()},
    }
    other = arguments("--iterations", "3", "--set", "capsnet.filters=8")
    assert script.current(done, other) == {"3 iterations": {}}


def test_the_tables_by_hand():
    def epoch(loss, *changes):
        more = {f"logit_change_{t + 1}": change for t, change in enumerate(changes)}
        return {"loss": loss, "held_out_accuracy": loss / 4, **more}

    found = {
        "1 iteration, uniform": {"0": [epoch(3.0), epoch(2.0)]},
        "3 iterations": {"0": [epoch(2.0, 0.1, 0.3), epoch(1.0, 0.2, 0.4)],
                         "1": [epoch(1.0, 0.3, 0.5)]},
        "5 iterations": {},
    }  # fmt: skip
    loss, accuracy, changes = script.report(found).split(":\n\n")[1:]
    assert loss.splitlines()[:4] == [
        "| epoch | seeds | 1 | 2 |",
        "|---|---|---|---|",
        "| 1 iteration, uniform | 1 | 3 | 2 |",
        # The deviation of 1 and 2, with one degree of freedom less, is the root of a half.
        "| 3 iterations | 2 | 1.5 ± 0.71 | 1 |",
    ]
    assert "| 1 iteration, uniform | 1 | 0.75 | 0.5 |" in accuracy
    assert changes.splitlines()[2:] == [
        "| 3 iterations, 1 | 2 | 0.2 ± 0.14 | 0.2 |",
        "| 3 iterations, 2 | 2 | 0.4 ± 0.14 | 0.4 |",
    ]
