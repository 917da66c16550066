"""Statistics of the codes of all training images, for whitening and for samples."""

import math

import keras
import numpy as np

from keras_capsule_poe.core.numerics import compiled, whole_number
from keras_capsule_poe.core.routing import winners
from keras_capsule_poe.data import sequential_batches
from keras_capsule_poe.data.mapping import chunks, map_batches, spread
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.metrics import relative_error
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
from keras_capsule_poe.models.base.feature_files import as_float32, load_arrays, load_model
from keras_capsule_poe.models.base.feature_training import SHOWN, MapStart, export_model
from keras_capsule_poe.models.base.gaussian_mixtures import fit_mixture
from keras_capsule_poe.models.base.saved import load_as
from keras_capsule_poe.models.capsule_poe.amplitude import frame_vectors
from keras_capsule_poe.models.capsule_poe.decoder import CapsuleDecoder
from keras_capsule_poe.models.capsule_poe.encoder import CapsuleEncoder
from keras_capsule_poe.models.capsule_poe.layers import CapsulePoE, GaussianMixtures
from keras_capsule_poe.models.capsule_poe.product import ProductOfExpertCapsules
from keras_capsule_poe.training.sanity import (
    figures,
    off_or_saturated,
    one_winner,
    warn,
    worse_than_mean,
)

# Images per expert: enough for the axes of sixteen dimensions.
AXES_IMAGES = 1_000
# Images per capsule: enough for Gaussians of some hundred dimensions, and a limit on memory.
DESCRIBED = 20_000
_CHUNK = 4096


class CodeDescription:
    """Whitening of the training codes, and Gaussian mixtures from which capsules are drawn."""

    def __init__(
        self,
        whitening=True,
        posterior_components=10,
        joint_components=3,
        joint_rank=64,
        amplitude=False,
    ):
        numbers = {
            "posterior_components": posterior_components,
            "joint_components": joint_components,
            "joint_rank": joint_rank,
        }
        for name, value in numbers.items():
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value!r}")
        if amplitude and not whitening:
            raise ValueError(
                "`amplitude` needs `whitening`, which gives it a unit. "
                "Received: amplitude=True, whitening=False"
            )
        self.whitening, self.amplitude = whitening, amplitude
        self.posterior_components = posterior_components
        self.joint_components, self.joint_rank = joint_components, joint_rank

    def turn(self, encoder, z, x_of):
        """Fit the encoder's whitening to codes z if `whitening` is set."""
        if self.whitening:
            adapt_frames(encoder, z, x_of)

    def describe(self, codes, seed):
        """Return `mean_direction` and the arrays of both mixtures for codes (N, J, E)."""
        found = {"mean_direction": mean_directions(codes)}
        for name, mixture in (
            ("visited", visited_mixtures(codes, self.posterior_components, seed, self.amplitude)),
            ("joint", joint_mixture(codes, self.joint_components, self.joint_rank, seed)),
        ):
            found |= {f"{name}_{part}": a.astype("float32") for part, a in mixture.items()}
        return found


def adapt_frames(encoder, z, x_of, floor=1e-6):
    """Fit each expert's whitening to the images that it wins, from z (N, J, E)."""
    winner = _winners(z)
    won = [_some(np.flatnonzero(winner == expert)) for expert in range(z.shape[1])]

    def causes(expert):
        rows = won[expert][:AXES_IMAGES]
        return x_of(rows).reshape(len(rows), -1)

    encoder.whitening.adapt([z[rows, expert] for expert, rows in enumerate(won)], causes, floor)


def mean_directions(codes):
    """Return the mean (J, E) of each capsule's `won_codes`."""
    return np.stack([won.mean(axis=0) for won in won_codes(codes)])


def won_codes(codes):
    """Yield each capsule's codes (n, E) on images that it wins, or on all if it wins too few."""
    winner = _winners(codes)
    for capsule in range(codes.shape[1]):
        won = np.flatnonzero(winner == capsule)
        rows = _some(won if len(won) > codes.shape[2] else np.arange(len(codes)))
        yield codes[rows, capsule]


def _some(rows):
    return rows[spread(len(rows), DESCRIBED)]


def _winners(codes):
    return np.concatenate([winners(part) for part in chunks(codes, _CHUNK)])


def visited_mixtures(codes, components, seed=0, amplitude=False):
    """Fit a Gaussian mixture to each capsule's `won_codes` or, with `amplitude`, their v."""
    n, capsules, dim = codes.shape
    dim -= amplitude
    # Limit the components to those that all codes can fill, since more may exceed the memory.
    components = int(np.clip(n // (4 * dim), 1, components))
    weights = np.zeros((capsules, components))
    means = np.zeros((capsules, components, dim))
    factors = np.zeros((capsules, components, dim, dim))
    for capsule, won in enumerate(won_codes(codes)):
        x = np.asarray(frame_vectors(won) if amplitude else won, "float64")
        k = int(np.clip(len(x) // (4 * dim), 1, components))
        # `reg_covar` gives the covariance of a few codes full rank.
        mixture = fit_mixture(x, k, seed, reg_covar=1e-4, tol=1e-2)
        weights[capsule, :k], means[capsule, :k] = mixture.weights, mixture.means
        factors[capsule, :k] = mixture.factors
    return {"weights": weights, "means": means, "factors": factors}


def joint_mixture(codes, components, rank, seed=0):
    """Fit one Gaussian mixture to whole codes (N, J, E), from k-means per winning capsule."""
    from sklearn.cluster import KMeans

    n, capsules, dim = codes.shape
    rank = min(rank, capsules * dim)
    components = int(np.clip(n // (2 * rank), 1, components))
    winner, flat = _winners(codes), codes.reshape(len(codes), -1)
    weights, means = (
        np.zeros((capsules, components)),
        np.zeros((capsules, components, capsules * dim)),
    )
    factors = np.zeros((capsules, components, capsules * dim, rank))
    for capsule in range(capsules):
        rows = np.flatnonzero(winner == capsule)
        won = flat[_some(rows)]
        k = int(np.clip(len(won) // (2 * rank), 1, components))
        part = (
            KMeans(k, n_init=1, random_state=seed).fit_predict(won) if k > 1 else np.zeros(len(won))
        )
        for component in range(k):
            x = won[part == component].astype("float64")
            if len(x):
                weights[capsule, component] = len(x) * len(rows) / len(won)
                means[capsule, component] = x.mean(axis=0)
            if len(x) > 1:
                factors[capsule, component] = _principal_axes(x, rank)
    whole = (1, capsules * components)
    return {
        "weights": weights.reshape(whole),
        "means": means.reshape(*whole, -1),
        "factors": factors.reshape(*whole, -1, rank),
    }


def _principal_axes(x, rank):
    """Return the strongest principal axes (K, rank) of rows (N, K), times their deviations."""
    from sklearn.decomposition import PCA

    factor = np.zeros((x.shape[1], rank))
    kept = min(rank, *x.shape)
    # The eigenvectors of a large covariance would take minutes.
    solver = "covariance_eigh" if x.shape[1] <= 500 else "randomized"
    found = PCA(kept, svd_solver=solver, iterated_power=2, random_state=0).fit(x)
    factor[:, :kept] = found.components_.T * np.sqrt(found.explained_variance_)
    return factor


def usage(codes, labels=None):
    """Return each capsule's mean probability, its deviation, and the fraction of images won.

    With labels (N,), also the number of classes, how many of them are the most frequent one of a
    capsule, and the mean share of a capsule's most frequent class. Training does not use labels.
    """
    lengths = [np.linalg.norm(part, axis=-1) for part in chunks(codes, _CHUNK)]
    probabilities = np.concatenate(lengths)
    winner = winners(probabilities)
    won = np.bincount(winner, minlength=codes.shape[1]) / len(codes)
    found = {}
    if labels is not None and labels.ndim == 1 and labels.min() >= 0:
        counts = np.zeros((codes.shape[1], labels.max() + 1), int)
        np.add.at(counts, (winner, labels), 1)
        used = counts[won > 0]
        found = {
            "classes": int(np.count_nonzero(counts.sum(axis=0))),
            "class_coverage": len(np.unique(used.argmax(axis=1))),
            "purity": round(float(np.mean(used.max(axis=1) / used.sum(axis=1))), 4),
        }
    return {
        **found,
        "probability_mean": [round(float(p), 4) for p in probabilities.mean(axis=0)],
        "probability_spread": [round(float(p), 4) for p in probabilities.std(axis=0)],
        "won": [round(float(share), 4) for share in won],
    }


def initial_maps(initial_stddev, weight_decay, seed):
    """Return a `CapsulePoE`'s arguments for Gaussian initial maps and weight decay."""
    if not initial_stddev > 0:
        raise ValueError(f"`initial_stddev` must be above zero. Received: {initial_stddev!r}")
    if not weight_decay >= 0:
        raise ValueError(
            f"`weight_decay` must be zero or more. Received: weight_decay={weight_decay!r}"
        )
    return {
        "kernel_initializer": keras.initializers.RandomNormal(stddev=initial_stddev, seed=seed),
        # The gradient of L2(l) is 2 l W, so half of the rate gives that rate.
        "kernel_regularizer": keras.regularizers.L2(weight_decay / 2),
    }


def build_encoder(config, primary_capsules):
    """Return the capsule encoder, built for I primary capsules."""
    settings = config["encoder"]
    experts = CapsulePoE(
        settings.capsules,
        settings.dim,
        **routing_arguments(settings),
        activation_prior_weight=settings.activation_prior_weight,
        use_bias=settings.use_bias,
        **_maps(config, "encoder", config.seed + 1),
        use_routing_bias=bool(settings.load_balancing),
        name="experts",
    )
    model = CapsuleEncoder(
        experts,
        load_balancing=load_balancing(settings),
        bias_rate=settings.bias_rate,
        cd_steps=whole_number("cd_steps", settings.cd_steps),
        amplitude=settings.amplitude,
        seed=config.seed,
        name="encoder",
    )
    model.build((None, primary_capsules, config["primary"].dim))
    return model


def code_dim(config):
    """Return the number of dimensions of a code."""
    return config["encoder"].dim + config["encoder"].amplitude


def build_decoder(config, primary_capsules):
    """Return the capsule decoder, built for I primary capsules."""
    settings = config["decoder"]
    primaries = CapsulePoE(
        primary_capsules,
        config["primary"].dim,
        **routing_arguments(settings),
        use_bias=settings.use_bias,
        **_maps(config, "decoder", config.seed + 2),
        name="primaries",
    )
    model = CapsuleDecoder(
        primaries,
        feature_scale=settings.feature_scale,
        activity=settings.activity,
        offset=settings.offset,
        conditional=settings.conditional,
        bias_rate=settings.bias_rate,
        amplitude=config["encoder"].amplitude,
        seed=config.seed,
        name="decoder",
    )
    model.build((None, config["encoder"].capsules, code_dim(config)))
    return model


def build_start(config):
    """Return the initialization of the encoder's maps."""
    return MapStart(config["encoder"].initializer, config["encoder"].image_length)


def build_description(config):
    """Return the `CodeDescription` of the settings."""
    settings = config["encoder"]
    return CodeDescription(
        settings.whitening,
        settings.posterior_components,
        settings.joint_components,
        settings.joint_rank,
        settings.amplitude,
    )


def check(config, image_shape=None):
    """Build every part to validate the settings; raise `ConfigError` that names the section."""

    def contrastive(section, build):
        def built(primary):
            optimizer(config, section, images=1)
            build(config, primary.capsules)

        return section, built

    later = (
        contrastive("encoder", build_encoder),
        contrastive("decoder", build_decoder),
        ("encoder", lambda primary: (build_start(config), build_description(config))),
    )
    check_parts(config, image_shape, later)


def _maps(config, section, seed):
    return initial_maps(config[section].initial_stddev, config[section].weight_decay, seed)


def outline(config, image_shape):
    """Return two dicts for display: shapes and parameter counts."""
    model = build_autoencoder(config, image_shape)
    primary = build_primary(config, model.feature_shape)
    encoder = build_encoder(config, primary.capsules)
    decoder = build_decoder(config, primary.capsules)
    shapes = {
        "image": tuple(image_shape),
        "feature map": model.feature_shape,
        "primary capsules": (primary.capsules, primary.dim),
        "expert capsules": (config["encoder"].capsules, code_dim(config)),
    }
    parameters = {
        "autoencoder": model.count_params(),
        "encoder": math.prod(encoder.experts.kernel.shape),
        "decoder": math.prod(decoder.primaries.kernel.shape),
    }
    return shapes, parameters


_PARTS = ("weights", "means", "factors")


def assemble(run, primary, decoder):
    """Return a run's product in float32, with the statistics of its training codes."""
    visits = load_arrays(run, "encoder/visited.npz")
    mixtures = [
        GaussianMixtures.of(*(visits[f"{name}_{part}"] for part in _PARTS), name=name)
        for name in ("visited", "joint")
    ]
    product = ProductOfExpertCapsules(
        as_float32(load_model(run, "autoencoder")),
        primary,
        load_model(run, "encoder"),
        decoder,
        *mixtures,
        name="product",
    )
    product.build((None, *product.autoencoder.image_shape))
    product.mean_direction.assign(visits["mean_direction"])
    return product


def encoder(run):
    """Train the expert capsules by contrastive divergence, then record their codes."""
    config = run.config
    primary = stored.load_primary(run)
    train = stored.features(run, "train")
    model = build_encoder(config, primary.capsules)
    # Trace each graph once, since both are called many times.
    to_primary, one_step = compiled(primary), compiled(model.experts.mean_field_step)

    def x_of(rows):
        return stored.primary_of(to_primary, train[rows])

    build_start(config).apply(model.experts, x_of, len(train), config.seed)
    model.compile(features.optimizer(config, "encoder", len(train)), jit_compile=False)
    new = stored.features(run, "held_out")
    seen, held_out = (stored.primary_of(to_primary, maps) for maps in (train[: len(new)], new))
    images = stored.load_model(run, "autoencoder")
    at_once = config["encoder"].batch_size

    def after_epoch():
        known, new = (figures(model, x, at_once) for x in (seen, held_out))
        return {
            "held_out_free_energy": new["free_energy"],
            "free_energy_gap": new["free_energy"] - known["free_energy"],
            "held_out_relative_error": new["loss"],
            "held_out_probability_mean": new["probability_mean"],
        }

    def picture(path):
        x = held_out[:SHOWN]
        rows = (x, one_step(x))
        save_grid(path, [images.decode(primary.to_features(row)) for row in rows])

    def stream(**order):
        return stored.primary_batches(primary, train, **order)

    schedule = features.schedule(config, "encoder")
    last = run.fit("encoder", model, stream, schedule, after_epoch, picture)

    def z_of(maps):
        return model.experts.route(primary(maps)).z

    description = build_description(config)
    z = stored.rows_meanwhile(run, "encoder/z.npy", z_of, train)
    description.turn(model, z, x_of)
    stored.save_rows(run, "encoder/codes.npy", model.whitening, z)
    codes = stored.load_rows(run, "encoder/codes.npy")
    visits = description.describe(codes, config.seed)
    stored.save_arrays(run, "encoder/visited.npz", **visits)
    stored.save_model(run, "encoder", model)
    found = worse_than_mean(held_out, last["held_out_relative_error"])
    found += off_or_saturated(last["held_out_probability_mean"])
    used = usage(codes, run.data.train.labels)
    found += one_winner(used["won"])
    return {**last, "capsules": used, **warn(run, "encoder", found)}


def decoder(run):
    """Train the maps from expert capsules to primary capsules, with the encoder frozen."""
    config = run.config
    primary = stored.load_primary(run)
    train = stored.features(run, "train")
    codes = stored.load_rows(run, "encoder/codes.npy")
    model = build_decoder(config, primary.capsules)
    model.compile(features.optimizer(config, "decoder", len(train)), jit_compile=False)
    product = assemble(run, primary, model)
    held_out = stored.primary_of(primary, stored.features(run, "held_out"))
    held_out_codes = map_batches(product.encoder, held_out)
    at_once = config["decoder"].batch_size

    def after_epoch():
        decoded = model.predict(sequential_batches(held_out_codes, at_once), verbose=0)
        return {"held_out_relative_error": float(relative_error(decoded, held_out))}

    def picture(path):
        original = product.from_visible(held_out[:SHOWN])
        decoded = product.decode(held_out_codes[:SHOWN])["images"]
        single = product.sample(len(original), seed=0, domain="posterior")["images"]
        save_grid(path, [original, decoded, single])

    def stream(**order):
        return stored.primary_batches(primary, (codes, train), **order)

    schedule = features.schedule(config, "decoder")
    last = run.fit("decoder", model, stream, schedule, after_epoch, picture)
    stored.save_model(run, "decoder", model)
    found = worse_than_mean(held_out, last["held_out_relative_error"])
    return {**last, **warn(run, "decoder", found)}


def trained_model(run):
    """Return the product of a run whose encoder and decoder are trained."""
    return assemble(run, stored.load_primary(run), stored.load_model(run, "decoder"))


def export(run):
    """Export the whole product for Keras and as a SavedModel, and draw its images."""
    return export_model(run, trained_model(run))


# This import registers the classes with Keras.


def load(path):
    """Load the `ProductOfExpertCapsules` of a `model.keras`."""
    return load_as(ProductOfExpertCapsules, path)
