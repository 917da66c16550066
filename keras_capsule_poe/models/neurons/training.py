"""Routing and states of the expert neurons on the training images."""

import math

import keras
import numpy as np
import tensorflow as tf

from keras_capsule_poe.core.binary_states import MOST_NEURONS
from keras_capsule_poe.core.boltzmann_mixture import fit_shares
from keras_capsule_poe.core.numerics import real_number, whole_number
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import RowView, chunks, map_batches, spread
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.models.base import feature_building as features
from keras_capsule_poe.models.base import feature_files as stored
from keras_capsule_poe.models.base.feature_building import (
    build_autoencoder,
    build_primary,
    load_balancing,
    optimizer,
    routing_arguments,
)
from keras_capsule_poe.models.base.feature_building import check as check_parts
from keras_capsule_poe.models.base.feature_training import SHOWN, MapStart, clustered, export_model
from keras_capsule_poe.models.base.saved import load_as
from keras_capsule_poe.models.neurons.config import has_top
from keras_capsule_poe.models.neurons.experts import NeuronExperts, NeuronMixtureExperts
from keras_capsule_poe.models.neurons.layers import NeuronMixture, NeuronPoE
from keras_capsule_poe.models.neurons.product import ProductOfExpertNeurons
from keras_capsule_poe.training.sanity import figures, warn, worse_than_mean

_CHUNK = 512
# Maximum number of images for fitting shares.
SHARED = 60_000


def visits(model, visible_of, feature_maps, remembered):
    """Return `coefficients` (1 + J, I, J), `visited` states (J, K, E) and `shares` (J,)."""
    layer = model.machine
    capsules = layer.capsules
    total = np.zeros((capsules, layer.kernel.shape[0], capsules))
    winner = []

    def routed(maps):
        v = visible_of(maps)
        c, y = layer.infer(v)
        return {"c": c, "activity": model.activity(y)}

    # In chunks: the coefficients of all images would take more memory than their features.
    compiled = tf.function(routed, reduce_retracing=True, autograph=False)
    for part in chunks(feature_maps, _CHUNK):
        found = map_batches(compiled, part)
        won = found["activity"].argmax(axis=1)
        for capsule in np.unique(won):
            total[capsule] += found["c"][won == capsule].sum(axis=0)
        winner.append(won)
    winner = np.concatenate(winner)
    counts = np.bincount(winner, minlength=capsules)
    mean = total.sum(axis=0) / len(winner)
    # Means over the images that each capsule won, or over all images if it won none.
    means = np.where(counts[:, None, None] > 0, total / np.maximum(counts, 1)[:, None, None], mean)
    coefficients = np.concatenate([mean[None], means])
    if layer.routing == "fixed":
        coefficients = layer.mean_coefficients.numpy()
    neurons = tf.function(
        lambda maps: layer(visible_of(maps)), reduce_retracing=True, autograph=False
    )
    visited = []
    for capsule in range(capsules):
        rows = _rows(winner, capsule, remembered)
        visited.append(map_batches(neurons, feature_maps[rows])[:, capsule])
    return {
        "coefficients": coefficients.astype("float32"),
        "visited": np.stack(visited).astype("float32"),
        "shares": (counts / len(winner)).astype("float32"),
    }


def settle_shares(layer, visible_of, feature_maps):
    """Set a mixture's shares by maximum likelihood on at most `SHARED` training images."""
    compiled = tf.function(
        lambda maps: layer.log_likelihoods(visible_of(maps)), reduce_retracing=True, autograph=False
    )
    some = RowView(feature_maps, spread(len(feature_maps), SHARED))
    found = map_batches(compiled, some).astype("float64")
    # Training used these biases for load balancing.
    layer.routing_bias.assign(fit_shares(found, layer.routing_bias.numpy()))


def _rows(winner, capsule, number):
    """Return `number` evenly spread images that a capsule won, or of all if it won none."""
    won = np.flatnonzero(winner == capsule)
    won = won if len(won) else np.arange(len(winner))
    return won[np.arange(number) * len(won) // number]


# Images for the initial biases.
ADAPTED = 20_000


def build_top(config, expert_shape):
    """Return the second layer over expert neurons (J, E), built but not compiled."""
    top = config["top"]
    # Every coupling coefficient is scale / capsules = 1: one restricted Boltzmann machine.
    layer = NeuronPoE(
        top.capsules,
        top.dim,
        visible="bernoulli",
        routing="fixed",
        coefficient_sum=float(top.capsules),
        softmax_over="outputs",
        implementation="reference",
        kernel_initializer=_initial_maps(top, config.seed + 2),
        name="layer",
    )
    model = NeuronExperts(
        layer,
        **_chain(top),
        binarize="stochastic",
        seed=config.seed,
        name="top",
    )
    model.build((None, *expert_shape))
    return model


def _initial_maps(settings, seed):
    """Return a section's initializer of maps."""
    stddev = real_number("initial_stddev", settings.initial_stddev, above=0)
    return keras.initializers.RandomNormal(stddev=stddev, seed=seed)


def _chain(settings):
    """Return a section's arguments of a `HarmoniumModel`."""
    return {
        "algorithm": settings.algorithm,
        "cd_steps": settings.cd_steps,
        "persistent_chains": settings.chains,
        "weight_decay": settings.weight_decay,
        "offset_rate": settings.offset_rate,
    }


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


def build_experts(config, primary_capsules):
    """Return the expert neurons, built for I primary capsules."""
    settings = config["experts"]
    if settings.dim > MOST_NEURONS:
        raise ValueError(
            f"`dim` must be at most {MOST_NEURONS}: single capsules are enumerated. "
            f"Received: dim={settings.dim!r}"
        )
    is_mixture = settings.routing == "mixture"
    layer_class = NeuronMixture if is_mixture else NeuronPoE
    layer = layer_class(
        settings.capsules,
        settings.dim,
        routing=settings.routing,
        centering=settings.centering,
        learn_variance=settings.learn_variance,
        **routing_arguments(settings),
        activation_prior_weight=settings.activation_prior_weight,
        kernel_initializer=_initial_maps(settings, config.seed + 1),
        # With biases far below zero, hidden neurons stay off until their images turn them on.
        bias_initializer=keras.initializers.Constant(
            real_number("initial_hidden_bias", settings.initial_hidden_bias)
        ),
        use_routing_bias=is_mixture or bool(settings.load_balancing),
        name="layer",
    )
    model_class = NeuronMixtureExperts if is_mixture else NeuronExperts
    model = model_class(
        layer,
        load_balancing=load_balancing(settings),
        **_chain(settings),
        seed=config.seed,
        name="experts",
    )
    model.build((None, primary_capsules, config["primary"].dim))
    return model


def build_start(config):
    """Return the initialization of the experts' maps."""
    return MapStart(config["experts"].initializer, config["experts"].image_length)


def start_maps(config, layer, x_of, images):
    """Initialize the maps of a built layer as the setting `initializer` says."""
    start = build_start(config)
    if start.initializer != "clusters" or not isinstance(layer, NeuronMixture):
        start.apply(layer, x_of, images, config.seed)
    elif images > layer.capsules:
        _, x, distances = clustered(x_of, images, layer.capsules, config.seed)
        nearest = distances.argmin(axis=1)
        groups = [x[nearest == capsule] for capsule in range(layer.capsules)]
        layer.start_from_groups(groups)


def build_product(config, autoencoder, primary, experts, top=None):
    """Return the whole product, built."""
    model = ProductOfExpertNeurons(
        autoencoder,
        primary,
        experts,
        top=top,
        posterior_states=config["experts"].posterior_states,
        joint_steps=config["experts"].joint_steps,
        name="product",
    )
    model.build((None, *autoencoder.image_shape))
    return model


def check(config, image_shape=None):
    """Build every part to validate the settings; raise `ConfigError` that names the section."""

    def experts(primary):
        optimizer(config, "experts", images=1)
        build_experts(config, primary.capsules)
        build_start(config)
        for name in ("posterior_states", "joint_steps"):
            whole_number(name, getattr(config["experts"], name))

    def top(primary):
        if has_top(config):
            optimizer(config, "top", images=1)
            build_top(config, (config["experts"].capsules, config["experts"].dim))

    check_parts(config, image_shape, [("experts", experts), ("top", top)])


def load(path):
    """Load the `ProductOfExpertNeurons` of a `model.keras`."""
    return load_as(ProductOfExpertNeurons, path)


def outline(config, image_shape):
    """Return two dicts for display: shapes and parameter counts."""
    model = build_autoencoder(config, image_shape)
    primary = build_primary(config, model.feature_shape)
    layer = build_experts(config, primary.capsules).machine
    shapes = {
        "image": tuple(image_shape),
        "feature map": model.feature_shape,
        "primary capsules": (primary.capsules, primary.dim),
        "expert neurons": (layer.capsules, layer.dim),
    }
    parameters = {
        "autoencoder": model.count_params(),
        "experts": sum(math.prod(weight.shape) for weight in layer.trainable_weights),
    }
    return shapes, parameters


def experts(run):
    """Train the expert neurons, then record their states on the training images."""
    config = run.config
    primary = stored.load_primary(run)
    train = stored.features(run, "train")
    model = build_experts(config, primary.capsules)
    start_maps(
        config,
        model.machine,
        lambda rows: map_batches(primary.to_capsules, train[rows]),
        len(train),
    )
    model.compile(features.optimizer(config, "experts", len(train)), jit_compile=False)
    new = stored.features(run, "held_out")
    seen, held_out = (map_batches(primary.to_capsules, maps) for maps in (train[: len(new)], new))
    images = stored.load_model(run, "autoencoder")
    at_once = config["experts"].batch_size

    def after_epoch():
        known, new = (figures(model, v, at_once) for v in (seen, held_out))
        return {
            "held_out_free_energy": new["free_energy"],
            "free_energy_gap": new["free_energy"] - known["free_energy"],
            "held_out_relative_error": new["loss"],
        }

    def picture(path):
        v = held_out[:SHOWN]
        rows = (v, model.machine.reconstruct(v))
        save_grid(path, [images.decode(primary.from_capsules(row)) for row in rows])

    def stream(**order):
        return stored.primary_batches(primary.to_capsules, train, **order)

    schedule = features.schedule(config, "experts")
    last = run.fit("experts", model, stream, schedule, after_epoch, picture)
    if config["experts"].routing == "mixture":
        settle_shares(model.machine, primary.to_capsules, train)
    found = visits(model, primary.to_capsules, train, config["experts"].posterior_states)
    model.machine.mean_coefficients.assign(found.pop("coefficients"))
    stored.save_arrays(run, "experts/visited.npz", **found)
    stored.save_model(run, "experts", model)
    won = [round(float(share), 4) for share in found["shares"]]
    wrong = worse_than_mean(held_out, last["held_out_relative_error"])
    return {**last, "won": won, **warn(run, "experts", wrong)}


def trained_model(run):
    """Return the product of a run whose experts are trained."""
    parts = (
        stored.as_float32(stored.load_model(run, "autoencoder")),
        stored.load_primary(run),
        stored.load_model(run, "experts"),
    )
    top = stored.load_model(run, "top") if has_top(run.config) else None
    model = build_product(run.config, *parts, top)
    found = stored.load_arrays(run, "experts/visited.npz")
    model.visited.assign(found["visited"])
    model.shares.assign(found["shares"])
    return model


def export(run):
    """Export the whole product for Keras and as a SavedModel, and draw its images."""
    return export_model(run, trained_model(run))
