"""Figures of inputs that are not trained on: those of Keras' `evaluate`, without its pipeline.

Rejected: a batch added to the figures of the last; the last few left out; a pipeline whose end
waits for the thread that tunes it.
"""

import numpy as np
import pytest

from keras_capsule_poe import CapsuleEncoder, CapsulePoE
from keras_capsule_poe.training.sanity import figures


@pytest.mark.some(2)
@pytest.mark.parametrize("at_once", [7, 3])
def test_they_are_those_of_evaluate(at_once):
    random = np.random.default_rng(0)
    experts = CapsulePoE(3, 2, implementation="reference", routing_iterations=2)
    model = CapsuleEncoder(experts)
    model.build((None, 6, 4))
    model.compile("sgd")
    x = random.uniform(-0.3, 0.3, size=(2, 7, 6, 4)).astype("float32")

    def found(inputs):
        # Older Keras gives arrays.
        return {name: float(value) for name, value in figures(model, inputs, at_once).items()}

    for inputs in x:
        expected = model.evaluate(inputs, batch_size=at_once, verbose=0, return_dict=True)
        assert {name: float(value) for name, value in expected.items()} == pytest.approx(
            found(inputs), rel=1e-6
        )
    assert found(x[1]) != pytest.approx(found(x[0]), rel=1e-3)


def test_their_pipeline_is_tuned_by_nothing():
    class Model:
        def evaluate(self, stream, **options):
            assert stream.options().autotune.enabled is False
            return {"batches": len(list(stream)), **options}

    assert figures(Model(), np.zeros((7, 2)), 3)["batches"] == 3
