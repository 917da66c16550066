"""Expert neurons and the second layer over them: models, and how they are trained."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Seed, Serializable, Tensor
from keras_capsule_poe.core.arguments import number_given, seed_given
from keras_capsule_poe.core.enumeration import fit_shares
from keras_capsule_poe.core.numerics import compiled, length, share, streams
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import RowView, chunks, map_batches, spread
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.metrics import ExpertUsage, expert_usage, mean_error
from keras_capsule_poe.models.base.clusters import clustered, initialize_maps
from keras_capsule_poe.models.base.features import (
    SHOWN,
    Features,
    begin,
    load_model,
    save_arrays,
    save_model,
    save_rows,
    sgd,
)
from keras_capsule_poe.models.base.inputs import rows_given
from keras_capsule_poe.models.boltzmann.model import HarmoniumModel
from keras_capsule_poe.models.neurons.layers import NeuronMixture, NeuronPoE
from keras_capsule_poe.training.sanity import figures, warn, worse_than_mean

# Settings that are arguments of the layer.
_OF_LAYER = {
    "capsules", "dim", "routing", "routing_iterations", "agreement_scale",
    "activation_prior_weight", "coefficient_sum",
}  # fmt: skip
# With hidden biases far below zero, neurons stay off until their images turn them on.
HIDDEN_BIAS = -4.0
# Length of the images that maps start as.
IMAGE_LENGTH = 0.3
INITIAL_STDDEV = 0.01
# Images at once: the coefficients of all images would take more memory than their features.
_AT_ONCE = 512
# Maximum numbers of images for the shares of a mixture, and for the biases of the second layer.
SHARED, ADAPTED = 60_000, 20_000
# Chains and last fraction of the learning rate of the second layer.
TOP_CHAINS, TOP_LEAST_RATE = 128, 0.05


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class NeuronExperts(HarmoniumModel):
    """Trains a `NeuronPoE` by contrastive divergence, as a `HarmoniumModel` with routed maps.

    Args:
        machine: `NeuronPoE`, or its config.
        load_balancing: Float l in `[0, 1]`, the rate of load balancing. Each step adds
            `l (1 - usage_j)` to the routing bias, where a balanced usage is one. Zero turns it
            off.
        **kwargs: `HarmoniumModel` arguments. Persistent chains and chains that start from noise
            need `routing="averaged"`, because other routings depend on the image.

    Call arguments:
        inputs: Tensor (B, I, D), the visible neurons v.

    Returns:
        Tensor (B, J, E), p(h = 1 | v).

    Raises:
        ValueError: If an argument is invalid.
        RuntimeError: If `fit` runs on another backend than TensorFlow and JAX.

    Example:

    >>> model = NeuronExperts(NeuronPoE(capsules=5, dim=3))
    >>> model.compile(keras.optimizers.SGD(0.01), jit_compile=False)
    >>> v = np.random.default_rng(0).normal(size=(8, 6, 4)).astype("float32")
    >>> history = model.fit(v, verbose=0)
    >>> model(v).shape, model.activity(model.departure(v)).shape
    (TensorShape([8, 5, 3]), TensorShape([8, 5]))

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons
    """

    MACHINE: Any = NeuronPoE

    def __init__(self, machine: Serializable, load_balancing: float = 0.0, **kwargs: Any) -> None:
        super().__init__(machine, **kwargs)
        layer = self.machine
        is_of_data = self.algorithm == "cd" and self.chains_initializer == "data"
        if layer.routing in ("per_image", "latent") and not is_of_data:
            raise ValueError(
                "Chains must be of the data where coefficients are of the image. Received: "
                f"routing={layer.routing!r}, algorithm={self.algorithm!r}, "
                f"chains_initializer={self.chains_initializer!r}"
            )
        if load_balancing and not layer.use_routing_bias:
            raise ValueError(
                "`load_balancing` moves the routing bias: give the machine use_routing_bias=True. "
                f"Received: load_balancing={load_balancing}"
            )
        self.load_balancing = share("load_balancing", load_balancing, or_zero=True)
        self.rarest_usage = ExpertUsage(name="rarest_usage")

    def departure(self, v):
        """Return p(h = 1 | v) - lambda (B, J, E), the distance of the neurons from rest."""
        return self.machine.infer(v)[1]

    def activity(self, y):
        """Return each capsule's root mean square (B, J) of departures (B, J, E)."""
        return length(y) / self.machine.dim**0.5

    def sample(self, n: int, steps: int = 1000, seed: Seed = 0) -> Tensor:
        """Sample visible neurons: exactly for a mixture, else by Gibbs steps from noise.

        Args:
            n, steps: Integers, the numbers of samples and of Gibbs steps.
            seed: Integer, scalar integer tensor or `keras.random.SeedGenerator`.

        Returns:
            Tensor (n, I, D).

        Raises:
            ValueError: If `routing="per_image"`, which needs an image.
        """
        layer = self.machine
        if layer.routing not in ("averaged", "latent", "mixture"):
            raise ValueError(
                "Without an image there is nothing to route by: `routing` must be 'averaged', "
                f"'latent' or 'mixture'. Received: routing={layer.routing!r}"
            )
        n = rows_given(n, math.prod(layer.visible_bias.shape), "rows")
        steps, seed = number_given("steps", steps, 0), seed_given(seed)
        if layer.routing == "averaged":
            return super().sample(n, steps, seed)
        if layer.routing == "mixture":
            return layer.draw(n, seed)[0]
        first, second, third = streams(seed, 3)
        v, c = layer.noise(n, first), layer.prior_coefficients(n, second)
        return layer.gibbs(v, c, steps, third)[0]

    def statistics(self, machine, y):
        c = machine.coefficients
        means = {"coefficients": ops.mean(c, axis=0)} if len(c.shape) == 3 else {}
        return {**means, "usage": expert_usage(self.activity(y))}

    def test_step(self, data):
        v, _ = self.images_of(data)
        self.rarest_usage.update_state(expert_usage(self.activity(self.departure(v))))
        return super().test_step(data)

    def update_weights(self, means, images):
        self._balance(means["usage"])
        return super().update_weights(means, images)

    def _balance(self, usage):
        self.rarest_usage.update_state(usage)
        if self.load_balancing and self.trains(self.machine.kernel):
            bias = self.machine.routing_bias
            bias.assign_add(ops.cast(self.load_balancing * (1 - usage), bias.dtype))


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class NeuronMixtureExperts(NeuronExperts):
    """Trains a `NeuronMixture` with the exact gradient of log P(v), derived by hand.

    The model's term is a sum over all states of each capsule, the limit of CD-k for large k. The
    mixture weights change only by load balancing (`load_balancing`).

    Args:
        machine: `NeuronMixture`, or its config.
        algorithm: `"ml"`, maximum likelihood.
        **kwargs: `NeuronExperts` arguments, without those of Markov chains.

    Call arguments:
        inputs: Tensor (B, I, D), the visible neurons v.

    Returns:
        Tensor (B, J, E), P(h = 1 | v).

    Raises:
        ValueError: If an argument is invalid.
        RuntimeError: If `fit` runs on another backend than TensorFlow and JAX.

    Example:

    >>> model = NeuronMixtureExperts(NeuronMixture(capsules=5, dim=3))
    >>> model.compile(keras.optimizers.SGD(0.01), jit_compile=False)
    >>> v = np.random.default_rng(0).normal(size=(8, 6, 4)).astype("float32")
    >>> history = model.fit(v, verbose=0)
    >>> model(v).shape
    TensorShape([8, 5, 3])

    Reference:

    - [Nair & Hinton, 2008](https://papers.nips.cc/paper/3536), implicit mixtures
    - [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons
    """

    MACHINE = NeuronMixture
    ALGORITHMS = ("ml",)

    def __init__(self, machine: Serializable, algorithm: str = "ml", **kwargs: Any) -> None:
        super().__init__(machine, algorithm=algorithm, **kwargs)

    def train_step(self, data):
        v, _ = self.images_of(data)
        means, _ = self.over_replicas(self._means_of)(v)
        return self.update_weights(means, ops.shape(v)[0])

    def test_step(self, data):
        v, _ = self.images_of(data)
        means = self._figures(v, self.machine.posterior(v))
        self.rarest_usage.update_state(means["usage"])
        return self._record(means, ops.shape(v)[0], None)

    def _means_of(self, v, share=1.0):
        """Return batch means of the log-likelihood gradient and of the metrics."""
        found, posterior = self.machine.likelihood_gradient(v)
        kernel = found.kernel - self.weight_decay * self.machine.kernel
        ascents = [kernel, found.hidden_bias, found.visible_bias]
        return {**self._figures(v, posterior), "ascents": ascents}, {}

    def _figures(self, v, posterior):
        """Return batch means of the usage, the mean-field reconstruction error and -log P(v)."""
        v = ops.cast(v, self.variable_dtype)
        return {
            "usage": self.machine.capsules * ops.mean(posterior.parent, axis=0),
            "error": mean_error(self.machine.decode_neurons(posterior.neurons), v),
            "free_energy": -ops.mean(posterior.log_density),
        }


def build_experts(settings, primary_capsules):
    """Return the expert neurons, built for I primary capsules."""
    experts, how = settings.experts, settings.compute.implementation
    is_mixture = experts.routing == "mixture"
    layer = (NeuronMixture if is_mixture else NeuronPoE)(
        **experts.model_dump(include=_OF_LAYER),
        centering=False,
        implementation="fused" if how == "auto" else how,
        kernel_initializer=keras.initializers.RandomNormal(
            stddev=INITIAL_STDDEV, seed=settings.seed + 1
        ),
        bias_initializer=keras.initializers.Constant(HIDDEN_BIAS),
        use_routing_bias=is_mixture or experts.load_balancing > 0,
        name="layer",
    )
    model = (NeuronMixtureExperts if is_mixture else NeuronExperts)(
        layer,
        **experts.model_dump(include={"load_balancing", "cd_steps", "weight_decay"}),
        seed=settings.seed,
        name="experts",
    )
    model.build((None, primary_capsules, settings.primary.dim))
    return model


def start_maps(layer, settings, x_of, images):
    """Initialize the maps of a built layer from primary capsules `x_of(rows)` (N, I, D)."""
    initializer, seed = settings.experts.initializer, settings.seed
    if initializer != "clusters" or not isinstance(layer, NeuronMixture):
        initialize_maps(layer, initializer, x_of, images, seed, IMAGE_LENGTH)
    elif images > layer.capsules:
        _, x, distances = clustered(x_of, images, layer.capsules, seed)
        nearest = distances.argmin(axis=1)
        layer.start_from_groups([x[nearest == capsule] for capsule in range(layer.capsules)])


def train_experts(run):
    """Train the expert neurons, then record their states on the training images."""
    settings = run.settings.experts
    features = Features(run, lambda primary: primary.to_capsules)
    primary, train = features.primary, features.train
    model = build_experts(run.settings, primary.capsules)
    layer, images = model.machine, load_model(run, "autoencoder")
    if not begin(run, "experts", model):
        start_maps(layer, run.settings, lambda rows: features.of(train[rows]), len(train))
    model.compile(sgd(settings, len(train)), jit_compile=False)
    new = features.held_out
    seen, held_out = features.of(train[: len(new)]), features.of(new)

    def after_epoch():
        known, new = (figures(model, v, settings.batch_size) for v in (seen, held_out))
        return {
            "val_loss": new["loss"],
            "val_relative_error": new["loss"],
            "val_free_energy": new["free_energy"],
            "free_energy_gap": new["free_energy"] - known["free_energy"],
        }

    def picture(path):
        v = held_out[:SHOWN]
        rows = (v, layer.reconstruct(v))
        save_grid(path, [images.decode(primary.from_capsules(row)) for row in rows])

    last = run.fit("experts", model, features.stream, settings.schedule, after_epoch, picture)
    if settings.routing == "mixture" and model.trainable_variables:
        settle_shares(layer, primary.to_capsules, train)
    found = visits(model, primary.to_capsules, train, settings.posterior_states)
    coefficients = found.pop("coefficients")
    if model.trainable_variables:
        layer.mean_coefficients.assign(coefficients)
    save_arrays(run, "experts/visited.npz", **found)
    save_model(run, "experts", model)
    won = [round(float(fraction), 4) for fraction in found["shares"]]
    wrong = worse_than_mean(held_out, last["val_relative_error"], features.mean)
    return {**last, "won": won, **warn(run, "experts", wrong)}


def settle_shares(layer, visible_of, maps):
    """Set a mixture's shares by maximum likelihood on the feature maps of training images."""
    some = RowView(maps, spread(len(maps), SHARED))
    graph = compiled(lambda maps: layer.log_likelihoods(visible_of(maps)))
    found = map_batches(graph, some).astype("float64")
    # Training used these biases for load balancing.
    layer.routing_bias.assign(fit_shares(found, layer.routing_bias.numpy()))


def visits(model, visible_of, maps, posterior_states):
    """Return arrays of the feature maps of all training images, by the capsule that they won.

    They are `coefficients` (1 + J, I, J), the means over all images and over those of each capsule;
    `visited` (J, K, E), p(h | v) of some of its images; and its share of the images, `shares` (J,).
    """
    layer, winner = model.machine, []
    capsules, inputs = layer.capsules, layer.kernel.shape[0]
    total = np.zeros((capsules, inputs, capsules))

    def routed(maps):
        c, y = layer.infer(visible_of(maps))
        return {"c": c, "activity": model.activity(y)}

    routed, neurons = compiled(routed), compiled(lambda maps: layer(visible_of(maps)))
    for part in chunks(maps, _AT_ONCE):
        found = map_batches(routed, part)
        won = found["activity"].argmax(axis=1)
        for capsule in np.unique(won):
            total[capsule] += found["c"][won == capsule].sum(axis=0)
        winner.append(won)
    winner = np.concatenate(winner)
    counts = np.bincount(winner, minlength=capsules)
    mean = total.sum(axis=0) / len(winner)
    posteriors = []
    for capsule in range(capsules):
        # All images, if the capsule won none.
        won = np.flatnonzero(winner == capsule) if counts[capsule] else np.arange(len(winner))
        rows = won[np.arange(posterior_states) * len(won) // posterior_states]
        posteriors.append(map_batches(neurons, maps[rows])[:, capsule])
    counted = counts[:, None, None]
    means = np.where(counted > 0, total / np.maximum(counted, 1), mean)
    coefficients = np.concatenate([mean[None], means])
    if layer.routing == "averaged":
        coefficients = layer.mean_coefficients.numpy()
    return {
        "coefficients": coefficients.astype("float32"),
        "visited": np.stack(posteriors).astype("float32"),
        "shares": (counts / len(winner)).astype("float32"),
    }


def build_top(settings):
    """Return the second layer over expert neurons (J, E), built but not compiled."""
    top, experts = settings.top, settings.experts
    # Every coupling coefficient is one: one restricted Boltzmann machine.
    layer = NeuronPoE(
        top.capsules,
        top.dim,
        visible="bernoulli",
        routing="averaged",
        coefficient_sum=float(top.capsules),
        implementation="reference",
        kernel_initializer=keras.initializers.RandomNormal(
            stddev=INITIAL_STDDEV, seed=settings.seed + 2
        ),
        name="layer",
    )
    model = NeuronExperts(
        layer,
        algorithm="pcd",
        persistent_chains=TOP_CHAINS,
        binarize="stochastic",
        weight_decay=1e-4,
        seed=settings.seed,
        name="top",
    )
    model.build((None, experts.capsules, experts.dim))
    return model


def train_top(run):
    """Train the second layer on p(h | v) of the training images."""
    settings, below = run.settings.top, load_model(run, "experts")
    features = Features(run, lambda primary: primary.to_capsules)

    def neurons(maps):
        return below(features.to_capsules(maps))

    held_out = map_batches(neurons, features.held_out)
    train = save_rows(run, "top/neurons.npy", neurons, features.train, stays=False)
    model = build_top(run.settings)
    if not begin(run, "top", model):
        model.adapt(train[spread(len(train), ADAPTED)])
    model.compile(sgd(settings, len(train), TOP_LEAST_RATE), jit_compile=False)

    def after_epoch():
        rows = train[: len(held_out)], held_out
        known, new = (figures(model, h, settings.batch_size) for h in rows)
        return {
            "free_energy_gap": new["free_energy"] - known["free_energy"],
            "val_loss": new["loss"],
            "val_relative_error": new["loss"],
        }

    def stream(**order):
        return batches(train, **order)

    last = run.fit("top", model, stream, settings.schedule, after_epoch)
    save_model(run, "top", model)
    return last
