"""Sets of baselines that samples are compared with."""

import functools

from keras_capsule_poe.evaluation.boltzmann_control import BoltzmannControl
from keras_capsule_poe.evaluation.controls import KINDS, FeatureControl
from keras_capsule_poe.evaluation.variational import VariationalControl
from keras_capsule_poe.functions.checks import one_of

SETS = ("none", "plain", "trained")
BOLTZMANN, VAE = "boltzmann_machine", "variational_autoencoder"


def control_set(controls, model, seed=0, vae_seconds=0):
    """Return functions by name that make unfitted baselines."""
    one_of("controls", controls, SETS)
    if vae_seconds and controls != "trained":
        raise ValueError(
            "`vae_seconds` goes with controls='trained'. "
            f"Received: vae_seconds={vae_seconds!r}, controls={controls!r}"
        )
    made = {}
    if controls != "none":
        made |= {kind: functools.partial(FeatureControl, kind, seed=seed) for kind in KINDS}
    if controls == "trained":
        # Trained baselines match the model's code size or number of parameters.
        neurons = model.capsules * model.dim
        made[BOLTZMANN] = functools.partial(BoltzmannControl, neurons, seed=seed)
        if vae_seconds:
            own = model.own_parameters
            vae = functools.partial(VariationalControl, own, vae_seconds, seed=seed)
            # Cached, so that callers can read `about` of the fitted one.
            made[VAE] = functools.cache(vae)
    return made
