"""What samples are compared with: no controls, plain ones, or trained ones besides."""

import functools

from keras_capsule_poe.evaluation.boltzmann_control import BoltzmannControl
from keras_capsule_poe.evaluation.controls import KINDS, FeatureControl
from keras_capsule_poe.evaluation.variational import VariationalControl
from keras_capsule_poe.functions.checks import one_of

SETS = ("none", "plain", "trained")
BOLTZMANN, VAE = "boltzmann_machine", "variational_autoencoder"


def control_set(controls, model, seed=0, vae_seconds=0):
    """Controls by name, as functions of nothing that make one which is not fitted yet.

    Args:
        controls: str. `"none"`; `"plain"`: every kind of `FeatureControl`; `"trained"`: these, a
            `BoltzmannControl` with as many hidden neurons as a code has numbers, and a
            `VariationalControl` of as many parameters as the model has of its own.
        model: `GenerativeModel`.
        seed: int, of their training.
        vae_seconds: float, how long the last is trained; zero: it is left out, as it must be
            where controls are not `"trained"`.

    Returns:
        dict of functions; that of the variational autoencoder gives the same one each time, which
        can be asked `about` itself when it is fitted.

    Raises:
        ValueError: If there is no such set, or it has nothing to train for so long.

    Examples:

    >>> list(control_set("plain", model=None))
    ['diagonal_gaussian', 'full_gaussian', 'gaussian_mixture']
    """
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
        neurons = model.capsules * model.dim
        made[BOLTZMANN] = functools.partial(BoltzmannControl, neurons, seed=seed)
        if vae_seconds:
            own = model.own_parameters
            vae = functools.partial(VariationalControl, own, vae_seconds, seed=seed)
            made[VAE] = functools.cache(vae)
    return made
