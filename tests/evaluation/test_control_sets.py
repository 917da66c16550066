"""Which baselines samples are compared with."""

from types import SimpleNamespace as Model

import numpy as np
import pytest

from keras_capsule_poe.evaluation.baselines import BOLTZMANN, KINDS, SETS, VAE, baseline_set
from keras_capsule_poe.evaluation.report import tables

MODEL = Model(capsules=2, dim=3, own_parameters=500)


def test_each_set_holds_the_one_before():
    found = [list(baseline_set(name, MODEL)) for name in SETS]
    assert found == [[], list(KINDS), [*KINDS, BOLTZMANN]]
    assert list(baseline_set("trained", MODEL, vae_seconds=1)) == [*KINDS, BOLTZMANN, VAE]
    with pytest.raises(
        ValueError, match="`baselines` must be 'none' or .*Received: baselines='all'"
    ):
        baseline_set("all", MODEL)
    with pytest.raises(ValueError, match="`vae_seconds` goes with baselines='trained'.*seconds=1"):
        baseline_set("simple", MODEL, vae_seconds=1)


def test_controls_are_as_large_as_the_model():
    made = baseline_set("trained", MODEL, seed=3, vae_seconds=0.1)
    assert made[BOLTZMANN]().model.machine.units == 6
    vae = made[VAE]()
    assert (vae.parameters, vae.seconds, vae.seed) == (500, 0.1, 3)
    # Figures ask the one that was fitted what it took; others go when they have been drawn from.
    assert made[VAE]() is vae and made.full_gaussian() is not made.full_gaussian()
    features = np.random.default_rng(0).normal(size=(20, 4))
    drawn = [made[name]().fit(features).sample(3, seed=0) for name in KINDS]
    assert [x.shape for x in drawn] == [(3, 4)] * 3


@pytest.mark.parametrize("present", [(), (BOLTZMANN,), (BOLTZMANN, VAE)])
def test_trained_controls_are_told_of_where_they_are(present):
    rows = dict.fromkeys(("real", *present), {"recognised": 0.5})
    ((_, note, *_),) = tables([{"samples": rows}])
    assert ("Boltzmann machine" in note) == (BOLTZMANN in present)
    assert ("variational autoencoder" in note) == (VAE in present)
