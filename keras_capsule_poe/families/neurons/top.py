"""A second layer that models the expert neurons: construction and training."""

import keras

from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.data.rows import spread
from keras_capsule_poe.families.features import build as features
from keras_capsule_poe.families.features import costs, stored
from keras_capsule_poe.families.features.build import arguments
from keras_capsule_poe.layers import NeuronPoE
from keras_capsule_poe.models import NeuronExperts
from keras_capsule_poe.training.figures import figures

# Fraction of the machine's large float32 product rate; see `features.costs`.
SHARE = 0.1
# Images for the initial biases.
ADAPTED = 20_000


def build_top(config, expert_shape):
    """Return the second layer over expert neurons (J, E), built but not compiled."""
    top = config["top"]
    if not top.initial_stddev > 0:
        raise ValueError(
            f"`initial_stddev` must be above zero. Received: initial_stddev={top.initial_stddev!r}"
        )
    # Every coupling coefficient is scale / capsules = 1: one restricted Boltzmann machine.
    layer = NeuronPoE(
        top.capsules,
        top.dim,
        visible="bernoulli",
        routing="fixed",
        scale=float(top.capsules),
        normalize="outputs",
        implementation="plain",
        kernel_initializer=keras.initializers.RandomNormal(
            stddev=top.initial_stddev, seed=config.seed + 2
        ),
        name="layer",
    )
    model = NeuronExperts(
        layer,
        **arguments(config, "top", NeuronExperts) | {"steps": top.passes},
        binarize="stochastic",
        seed=config.seed,
        name="top",
    )
    model.build((None, *expert_shape))
    return model


def cost(config, image_shape, images, held_out):
    """Return the `Cost` of training the second layer."""
    top, experts = config["top"], config["experts"]
    maps = top.capsules * top.dim * experts.capsules * experts.dim
    return costs.trained(
        config, "top", SHARE, 2 * maps * (2 * top.passes + 4), images, 8 * maps * costs.BYTES
    )


def top(run):
    """Train the second layer on p(h | v) of the training images."""
    primary, below = stored.load_primary(run), stored.load_model(run, "experts")

    def neurons(maps):
        return below(primary.to_capsules(maps))

    held_out = map_batches(neurons, stored.features(run, "held_out"))
    train = stored.rows_meanwhile(run, "top/neurons.npy", neurons, stored.features(run, "train"))
    return _fit(run, train, held_out)


def _fit(run, train, held_out):
    """Train the second layer on expert neurons (N, J, E) and return its last metrics."""
    config = run.config
    model = build_top(config, train.shape[1:])
    model.adapt(train[spread(len(train), ADAPTED)])
    model.compile(features.optimizer(config, "top", len(train)), jit_compile=False)

    def after_epoch():
        at_once = config["top"].batch_size
        known, new = (figures(model, h, at_once) for h in (train[: len(held_out)], held_out))
        return {
            "free_energy_gap": new["free_energy"] - known["free_energy"],
            "held_out_relative_error": new["loss"],
        }

    def stream(**order):
        return batches(train, **order)

    last = run.fit("top", model, stream, features.schedule(config, "top"), after_epoch)
    stored.save_model(run, "top", model)
    return last
