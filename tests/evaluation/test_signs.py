"""What tells an image from its negative: nothing without a bias, and what is drawn."""

import numpy as np
import pytest

from keras_capsule_poe.data import ImageData
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.evaluation.report import measure, tables
from keras_capsule_poe.evaluation.signs import area_under_curve, negative_share, sign_metrics


@pytest.mark.long
def test_without_a_bias_the_free_energy_tells_nothing(model, image_set):
    data = ImageData(image_set(40, 1), image_set(300, 2))
    found = sign_metrics(model, data, samples=20)
    assert found["energy_gap"] == 0 and found["auc"] == 0.5
    # Test images that are training images are themselves, whatever the model.
    same = ImageData(data.train, data.train)
    assert sign_metrics(model, same, samples=0) == {
        "energy_gap": 0, "auc": 0.5, "negatives_real": 0
    }  # fmt: skip
    assert list(found)[3:] == [
        f"negatives_{d}" for d in ("posterior", "half_space", "prior", "joint")
    ]


def test_with_a_bias_the_gap_is_that_of_the_free_energies(small_product, image_set):
    model = small_product(use_bias=True)
    data = ImageData(image_set(40, 1), image_set(60, 2))
    found = sign_metrics(model, data, samples=0)
    x = map_batches(model.to_visible, data.test.images[:2000])
    energies = [np.asarray(model.encoder.experts.free_energy(sign * x)) for sign in (1, -1)]
    # Graph and eager execution round float32 differently.
    assert found["energy_gap"] == pytest.approx(np.mean(energies[1] - energies[0]), abs=1e-4)
    assert abs(found["energy_gap"]) > 1e-3
    pairs = energies[0][:, None] < energies[1]
    assert found["auc"] == pytest.approx(pairs.mean(), abs=1e-3) and found["auc"] != 0.5


def test_the_area_under_the_curve_by_all_pairs():
    random = np.random.default_rng(0)
    low, high = random.integers(9, size=50), random.integers(2, 12, size=70)
    pairs = low[:, None], high[None]
    expected = np.mean(pairs[0] < pairs[1]) + np.mean(pairs[0] == pairs[1]) / 2
    assert area_under_curve(low, high) == pytest.approx(expected, abs=1e-15)
    assert area_under_curve(low, low) == 0.5
    assert area_under_curve(high, low) == pytest.approx(1 - expected, abs=1e-15)


def test_half_of_what_an_even_law_draws_is_negative():
    random = np.random.default_rng(0)
    training = random.normal(size=(50, 30)) + 2
    training /= np.linalg.norm(training, axis=1, keepdims=True)
    assert negative_share(training, training) == 0 and negative_share(-training, training) == 1
    mixed = np.concatenate([training, -training])
    assert negative_share(np.repeat(mixed, 10, axis=0), training) == 0.5


@pytest.mark.long
def test_the_figures_are_in_the_report(model, image_set):
    data = ImageData(image_set(40, 1, labels=False), image_set(30, 2, labels=False))
    found = measure(model, data, samples=10)
    (table,) = (table for table in tables([found]) if table[0] == "Negative images")
    assert dict(table[3])["AUC"] == 0.5 and dict(table[3])["Energy gap"] == 0
