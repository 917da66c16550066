"""The expert neurons, built from settings, and loading of a trained product."""

import keras

from keras_capsule_poe.families.features import build as features
from keras_capsule_poe.families.features.build import arguments, optimizer
from keras_capsule_poe.families.features.build import check as check_parts
from keras_capsule_poe.families.features.optimizers import for_capsules
from keras_capsule_poe.families.features.starts import MapStart, clustered
from keras_capsule_poe.families.neurons.top import build_top
from keras_capsule_poe.families.neurons.top_section import has_top
from keras_capsule_poe.families.saved import load_as
from keras_capsule_poe.functions.checks import real_number, whole_number
from keras_capsule_poe.functions.state_tables import MOST_NEURONS
from keras_capsule_poe.layers import NeuronMixture, NeuronPoE
from keras_capsule_poe.models import (
    NeuronExperts,
    NeuronMixtureExperts,
    ProductOfExpertNeurons,
)
from keras_capsule_poe.training.schedule import Schedule


def maps_and_chain(initial_stddev, hidden_start, passes, seed):
    """Return keyword arguments of a `NeuronPoE` and of its `NeuronExperts`."""
    if not initial_stddev > 0:
        raise ValueError(f"`initial_stddev` must be above zero. Received: {initial_stddev!r}")
    initializer = keras.initializers.RandomNormal(stddev=initial_stddev, seed=seed)
    # With biases far below zero, hidden neurons stay off until their images turn them on.
    maps = {
        "kernel_initializer": initializer,
        "bias_initializer": keras.initializers.Constant(real_number("hidden_start", hidden_start)),
    }
    return maps, {"steps": whole_number("passes", passes)}


# Functions and classes that take the settings of each section.
USES = {
    **features.USES,
    "experts": (
        NeuronPoE, NeuronExperts, ProductOfExpertNeurons, MapStart, maps_and_chain, Schedule,
        for_capsules,
    ),
    "top": (NeuronPoE, NeuronExperts, maps_and_chain, Schedule, for_capsules),
}  # fmt: skip


def build_experts(config, primary_capsules):
    """Return the expert neurons, built for I primary capsules."""
    settings = config["experts"]
    if settings.dim > MOST_NEURONS:
        raise ValueError(
            f"`dim` must be at most {MOST_NEURONS}: single capsules are enumerated. "
            f"Received: dim={settings.dim!r}"
        )
    maps, chain = maps_and_chain(
        **arguments(config, "experts", maps_and_chain), seed=config.seed + 1
    )
    is_mixture = settings.routing == "mixture"
    layer_class = NeuronMixture if is_mixture else NeuronPoE
    layer = layer_class(
        **arguments(config, "experts", NeuronPoE),
        **maps,
        use_routing_bias=is_mixture or bool(settings.balance),
        name="layer",
    )
    options = {**arguments(config, "experts", NeuronExperts), **chain, "start": "data"}
    model_class = NeuronMixtureExperts if is_mixture else NeuronExperts
    model = model_class(layer, **options, seed=config.seed, name="experts")
    model.build((None, primary_capsules, config["primary"].dim))
    return model


def start_maps(config, layer, x_of, images):
    """Initialize the maps of a built layer as the setting `start` says."""
    start = MapStart(**arguments(config, "experts", MapStart))
    if start.start != "clusters" or not isinstance(layer, NeuronMixture):
        start.apply(layer, x_of, images, config.seed)
    elif images > layer.capsules:
        _, x, distances = clustered(x_of, images, layer.capsules, config.seed)
        nearest = distances.argmin(axis=1)
        groups = [x[nearest == capsule] for capsule in range(layer.capsules)]
        layer.start_from_groups(groups)


def build_product(config, autoencoder, primary, experts, top=None):
    """Return the whole product, built."""
    options = arguments(config, "experts", ProductOfExpertNeurons)
    model = ProductOfExpertNeurons(
        autoencoder, primary, experts, top=top, **options, name="product"
    )
    model.build((None, *autoencoder.image_shape))
    return model


def check(config, image_shape=None):
    """Build every part to validate the settings; raise `ConfigError` that names the section."""

    def experts(primary):
        optimizer(config, "experts", images=1)
        build_experts(config, primary.capsules)
        MapStart(**arguments(config, "experts", MapStart))
        for name in ("remembered", "joint_steps"):
            whole_number(name, getattr(config["experts"], name))

    def top(primary):
        if has_top(config):
            optimizer(config, "top", images=1)
            build_top(config, (config["experts"].capsules, config["experts"].dim))

    check_parts(config, image_shape, [("experts", experts), ("top", top)])


def load(path):
    """Load the `ProductOfExpertNeurons` of a `model.keras`."""
    return load_as(ProductOfExpertNeurons, path)
