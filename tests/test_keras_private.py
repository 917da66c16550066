"""Private names of Keras do what the package takes for granted, and one file alone uses them.

If Keras changes one of them, its test fails with a sentence that says which. Rejected: another file
that takes up a private name.
"""

import ast
from pathlib import Path

import keras
import numpy as np
import pytest
from keras.src.export import export_utils

import keras_capsule_poe
from keras_capsule_poe import keras_private

ROOT = Path(keras_capsule_poe.__path__[0])
# Attributes of our own classes that Keras has in classes of its own.
OURS = {"_iterations", "_kernel", "_lock", "_model", "_path"}
_NOT_KERAS = {"progress.py": {"_metrics"}, "checkpoints.py": {"_metrics"}}


def changed(what):
    return f"Keras {keras.__version__} has changed: {what}. See keras_private.py."


class Doubling(keras_private.Exportable, keras.Model):
    """A model that needs no shape to build."""

    batch_shape = None, 3

    def build(self, input_shape=None):
        self.built = True

    def call(self, x):
        return 2 * x


@pytest.fixture
def model():
    """A model of two layers, one inside the other."""
    inner = keras.Sequential([keras.layers.Dense(2, name="dense")], name="inner")
    model = keras.Sequential([inner], name="outer")
    model.build((None, 3))
    return model


def test_layers_are_listed_at_any_depth(model):
    names = {layer.name for layer in keras_private.all_layers(model)}
    assert names >= {"outer", "inner", "dense"}, changed("`_flatten_layers` lists other layers")


def test_compiled_metrics_are_found_and_built(model):
    model.compile("sgd", "mse")
    assert keras_private.compiled_metrics(model) is None, changed(
        "`metrics` holds compiled metrics without any"
    )
    model.compile("sgd", "mse", metrics=["mae"])
    found = keras_private.compiled_metrics(model)
    assert found is not None and not found.built, changed("no metric is named `compile_metrics`")
    found.update_state(np.zeros((1, 2)), np.zeros((1, 2)))
    assert found.built, changed("compiled metrics are not built by an update")
    found.reset_state()


def test_fit_marks_its_own_evaluation():
    given = []

    class Model(keras.Sequential):
        def evaluate(self, *args, **kwargs):
            given.append(keras_private.validates_in_fit(kwargs))
            return super().evaluate(*args, **kwargs)

    model, x = Model([keras.layers.Dense(1)]), np.zeros((4, 3), "float32")
    model.compile("sgd", "mse")
    model.fit(x, x[:, :1], validation_data=(x, x[:, :1]), verbose=0)
    model.evaluate(x, x[:, :1], verbose=0)
    assert given == [True, False], changed("`fit` gives no `_use_cached_eval_dataset`")


def test_an_optimizer_knows_the_places_of_its_variables(model):
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    places = [keras_private.variable_index(optimizer, v) for v in model.trainable_variables]
    assert places == [0, 1], changed("`_get_variable_index`")


def test_a_built_model_takes_state_in_place_of_former_state():
    model = Doubling()
    model.build()
    for name in ("first", "second"):
        with keras_private.unlocked(model) as forget:
            forget(getattr(model, "carried", None))
            model.carried = keras.metrics.Mean(name)
        tracked = [metric.name for metric in model.metrics]
        assert tracked.count(name) == 1, changed("`_tracker` does not unlock a built model")
    assert "first" not in tracked, changed("`_tracker.untrack` leaves what was replaced")
    with pytest.raises(ValueError):
        model.more = keras.layers.Dense(1)
        pytest.fail(changed("`_lock_state` does not lock a model"))


def test_a_model_forgets_its_own_variables_and_is_built_again():
    class Own(keras.Model):
        def build(self, input_shape=None):
            self.weight = self.add_weight((2,), name="weight")
            self.built = True

    model = Own()
    for _ in range(2):
        model.build()
        own = keras_private.own_variables(model)
        assert [v.name for v in own] == ["weight"], changed(
            "`_trainable_variables` is another list"
        )
        with keras_private.unlocked(model) as forget:
            forget(own[0])
            model.built = False
        assert not model.weights, changed("`_tracker.untrack` leaves a variable")


def test_callbacks_know_that_larger_is_better(model):
    stopping = keras.callbacks.EarlyStopping("val_share")
    model.share = keras_private.LargerIsBetter("share")
    stopping.set_model(model)
    stopping._set_monitor_op()
    assert stopping.monitor_op is keras.ops.greater, changed(
        "callbacks look up the direction of a metric elsewhere than in `_direction`"
    )


def test_a_mean_that_callbacks_know_is_a_mean():
    metric = keras_private.LargerIsBetter.from_config({"name": "share", "dtype": "float32"})
    metric.update_state([0.0, 1.0, 1.0, 1.0])
    assert float(metric.result()) == 0.75 and len(metric.variables) == 2
    metric.reset_state()
    assert float(metric.result()) == 0 and metric.get_config()["name"] == "share"


def test_a_model_that_was_built_without_a_shape_can_be_exported(tmp_path):
    model = Doubling()
    model.build()
    (found,) = export_utils.get_input_signature(model)
    assert tuple(found.shape) == (None, 3), changed("`_build_shapes_dict` or `_called`")
    model.export(tmp_path / "model", verbose=False)
    assert (tmp_path / "model" / "saved_model.pb").exists()


def private_names():
    """Private names of Keras' objects."""
    model = keras.Sequential([keras.layers.BatchNormalization()])
    model.compile("adam", "mse")
    model.build((None, 2))

    class Subclassed(keras.Model):
        pass

    kinds = model, model.layers[0], model.optimizer, Subclassed(), keras.metrics.Mean()
    kinds += keras.losses.MeanSquaredError(), keras.callbacks.EarlyStopping()
    names = {name for each in kinds for name in (*dir(each), *vars(each))}
    return {name for name in names if name.startswith("_") and not name.startswith("__")} - OURS


def test_one_file_alone_uses_private_names():
    known, found = private_names(), []
    for path in sorted(ROOT.rglob("*.py")):
        if path.name == "keras_private.py":
            continue
        text = path.read_text()
        found += [f"{path.name}: keras.src"] if "keras.src" in text else []
        for node in ast.walk(ast.parse(text)):
            name = getattr(node, "attr", None) or getattr(node, "name", None)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value
            if name in known - _NOT_KERAS.get(path.name, set()):
                found.append(f"{path.name}:{node.lineno}: {name}")
    assert not found, "\n".join(found)
