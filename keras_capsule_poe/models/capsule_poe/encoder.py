"""The capsule encoder: expert capsules trained by contrastive divergence."""

import functools
from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Serializable, Tensor
from keras_capsule_poe.core.divergence import contrastive_divergence
from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.core.numerics import compiled, real_number, share, whole_number
from keras_capsule_poe.core.units import free_energy
from keras_capsule_poe.data.mapping import map_batches, spread
from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.former_names import with_former_names, without_removed
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.metrics import (
    ExpertUsage,
    OrientationConcentration,
    expert_usage,
    mean_error,
)
from keras_capsule_poe.models.base.clusters import initialize_maps
from keras_capsule_poe.models.base.contrastive import ContrastiveModel
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
from keras_capsule_poe.models.base.protocols import build_once, deserialized
from keras_capsule_poe.models.capsule_poe.codes import adapt_whitening, mean_directions, usage
from keras_capsule_poe.models.capsule_poe.layers import CapsulePoE, Whitening
from keras_capsule_poe.training.sanity import (
    CLUSTERED,
    FEWEST,
    figures,
    off_or_saturated,
    one_winner,
    warn,
    worse_than_clusters,
    worse_than_mean,
)


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class CapsuleEncoder(ContrastiveModel):
    """Encodes primary capsules to expert capsules, with maps W trained without labels or autodiff.

    Compile with an SGD optimizer. Fit on batches of squashed primary capsules. Each step routes the
    data once, runs k Gibbs steps with these coefficients, and applies the difference of the two
    correlations (Algorithm 1). `evaluate` runs one Gibbs step, which k does not change.

    A subclass may have persistent chains: `chain_starts` gives their states, and `chain_ends` takes
    them after a step.

    Args:
        experts: `CapsulePoE`, or its config.
        load_balancing: Float l in `[0, 1]`, the rate of load balancing. Each step adds
            `l (1 - usage_j)` to the routing bias, where a balanced usage is one. Zero turns it
            off. It needs experts with `use_routing_bias=True`.
        bias_rate: Float, the learning rate of the experts' bias relative to the maps.
        cd_steps: Integer, the k of CD-k.
        seed: Integer.
        **kwargs: `keras.Model` arguments.

    Call arguments:
        inputs: Tensor (B, I, D), squashed primary capsules.

    Returns:
        Tensor (B, J, E), squashed expert capsules, whitened after `whitening.adapt` (see
        `Whitening`). Their lengths are probabilities.

    Raises:
        ValueError: If an argument is out of range, or `load_balancing` is on and the experts have
            no routing bias.
        RuntimeError: If `fit` runs on another backend than TensorFlow and JAX.

    Example:

    >>> from keras_capsule_poe import CapsulePoE
    >>> model = CapsuleEncoder(CapsulePoE(capsules=5, dim=3))
    >>> model.compile(keras.optimizers.SGD(0.1, momentum=0.5), jit_compile=False)
    >>> x = np.random.default_rng(0).uniform(0, 0.3, size=(8, 6, 4)).astype("float32")
    >>> history = model.fit(x, verbose=0)
    >>> model(x).shape
    TensorShape([8, 5, 3])

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1, Equation 18
    """

    def __init__(
        self,
        experts: Serializable,
        load_balancing: float = 0.0,
        bias_rate: float = 1.0,
        cd_steps: int = 1,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(seed=seed, **kwargs)
        experts = deserialized(experts)
        if not isinstance(experts, CapsulePoE):
            raise ValueError(f"`experts` must be a CapsulePoE layer. Received: experts={experts!r}")
        if load_balancing and not experts.use_routing_bias:
            raise ValueError(
                "`load_balancing` moves the routing bias: give the experts use_routing_bias=True. "
                f"Received: load_balancing={load_balancing}"
            )
        experts.check_units()
        self.experts = experts
        self.whitening = Whitening(dtype="float32", name="frames")
        self.whitening.units = experts.units
        self.load_balancing = share("load_balancing", load_balancing, or_zero=True)
        self.bias_rate = real_number("bias_rate", bias_rate, above=0)
        self.cd_steps = whole_number("cd_steps", cd_steps)
        self.free_energy_tracker = keras.metrics.Mean(name="free_energy")
        self.probability_mean = keras.metrics.Mean(name="probability_mean")
        self.probability_spread = keras.metrics.Mean(name="probability_spread")
        self.rarest_usage = ExpertUsage(name="rarest_usage")
        self.concentration = OrientationConcentration(experts.capsules, experts.dim)

    @property
    def frames(self):
        """The `whitening`; files of weights know it by this name, which Keras finds first."""
        return self.whitening

    def build(self, input_shape):
        build_once(self.experts, input_shape)
        build_once(self.whitening, self.experts.compute_output_shape(input_shape))
        self.built = True

    def call(self, inputs):
        return ops.cast(self.whitening(self.experts.route(inputs).z), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return self.whitening.compute_output_shape(self.experts.compute_output_shape(input_shape))

    def start_from_images(self, x, length):
        """Initialize the maps with images: row e of expert j is one image's primary capsules.

        From small random maps, the first direction of an expert takes all its dimensions, because
        the score of a saturated expert is weak. Images span many directions.

        Args:
            x: Array (J * E, I, D), squashed primary capsules of random images.
            length: Float, the Euclidean length of each row.
        """
        if not self.built:
            self.build((None, *x.shape[1:]))
        self.experts.start_from_images(x, length)

    def chain_starts(self) -> Tensor | None:
        """Return states (N, I, D) at which Gibbs chains start; None: they start at the images."""
        return None

    def chain_ends(self, x: Tensor) -> None:
        """Take the states (N, I, D) of the chains of `chain_starts` after a training step."""

    def train_step(self, data):
        x, _ = self.images_of(data)
        of_part = functools.partial(self._gradient_and_metrics, chains=self.chain_starts())
        means, same = self.over_replicas(of_part)(x)
        update = self.apply_ascent(zip(self.experts.learned, means["ascents"]))
        if self.load_balancing and self.trains(self.experts.kernel):
            more = self.load_balancing * (1 - means["usage"])
            self.experts.routing_bias.assign_add(more)
        if same and self.trains(self.experts.kernel):
            self.chain_ends(same["chains"])
        return self._record(means, ops.shape(x)[0], update)

    def test_step(self, data):
        x, _ = self.images_of(data)
        return self._record(self._gradient_and_metrics(x, cd_steps=1)[0], ops.shape(x)[0], None)

    def _gradient_and_metrics(self, x, share=1.0, cd_steps=None, chains=None):
        """Return means of the gradient and the metrics of capsules (B, I, D), and chains' ends."""
        options = {"cd_steps": cd_steps or self.cd_steps, "chains": chains}
        divergence = contrastive_divergence(x=x, **options, **self.experts.sides())
        units, z, reconstruction = self.experts.units, divergence.z, divergence.reconstruction
        if chains is not None:
            reconstruction = self.experts.mean_field_step(x)
        p = units.probability(z)
        means = {
            "ascents": self.experts.ascents(divergence, self.bias_rate),
            "usage": expert_usage(p),
            "error": mean_error(reconstruction, x),
            "free_energy": ops.mean(free_energy(z, units)),
            "probability": ops.mean(p, axis=0),
            "probability_squared": ops.mean(ops.square(p), axis=0),
            "orientations": self.concentration.means(units.mean(z)),
        }
        return means, {} if chains is None else {"chains": divergence.reconstruction}

    def _record(self, means, images, update):
        self.track(means["error"], update, images)
        p = means["probability"]
        self.free_energy_tracker.update_state(means["free_energy"], images)
        self.probability_mean.update_state(ops.mean(p), images)
        variance = means["probability_squared"] - ops.square(p)
        self.probability_spread.update_state(ops.sqrt(ops.maximum(variance, 0)), images)
        self.rarest_usage.update_state(means["usage"])
        self.concentration.add(images, *means["orientations"])
        return self.results(update)

    @classmethod
    def from_config(cls, config):
        # Configs of older versions have an annealed activation prior.
        return super().from_config(without_removed(config, "prior_start", "prior_steps"))


def routing_arguments(settings, part):
    """Return the arguments of the layer of a part for its routing."""
    names = ("routing_iterations", "agreement_scale", "softmax_over")
    how = settings.compute.implementation
    arguments = {name: getattr(getattr(settings, part), name) for name in names}
    return {**arguments, "implementation": "fused" if how == "auto" else how}


def initial_maps(weight_decay, seed):
    """Return a layer's arguments for small Gaussian maps and weight decay."""
    return {
        "kernel_initializer": keras.initializers.RandomNormal(stddev=1e-3, seed=seed),
        # The gradient of L2(l) is 2 l W, so half of the rate gives that rate.
        "kernel_regularizer": keras.regularizers.L2(weight_decay / 2),
    }


def class_of(settings, name, base):
    """Return the class that a setting of the encoder names, by default `base`."""
    registered = getattr(settings.encoder, name)
    found = keras.saving.get_registered_object(registered) if registered else base
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(
            f"encoder.{name} must be a subclass of {base.__name__} that is registered with Keras. "
            f"Received: {registered!r}. Import the module that defines it first."
        )
    return found


def build_encoder(settings, primary_capsules):
    """Return the capsule encoder, built for I primary capsules."""
    model = new_encoder(settings)
    model.build((None, primary_capsules, settings.primary.dim))
    return model


def new_encoder(settings):
    """Return the capsule encoder, not built; raise if own classes do not fit."""
    encoder = settings.encoder
    experts = class_of(settings, "experts_class", CapsulePoE)(
        encoder.capsules,
        encoder.dim,
        **routing_arguments(settings, "encoder"),
        coefficient_sum=encoder.coefficient_sum,
        activation_prior_weight=encoder.activation_prior_weight,
        use_bias=encoder.use_bias,
        **initial_maps(encoder.weight_decay, settings.seed + 1),
        use_routing_bias=bool(encoder.load_balancing),
        name="experts",
    )
    experts.check_squash("visible_units")
    return class_of(settings, "encoder_class", CapsuleEncoder)(
        experts,
        load_balancing=encoder.load_balancing,
        bias_rate=encoder.bias_rate,
        cd_steps=encoder.cd_steps,
        seed=settings.seed,
        name="encoder",
    )


def train_encoder(run):
    """Train the expert capsules by contrastive divergence, then record their codes."""
    settings, seed = run.settings.encoder, run.settings.seed
    features = Features(run)
    primary, train = features.primary, features.train
    model = build_encoder(run.settings, primary.capsules)
    # Trace each graph once, since both are called many times.
    to_primary, one_step = compiled(primary), compiled(model.experts.mean_field_step)

    def x_of(rows):
        return map_batches(to_primary, train[rows])

    if not begin(run, "encoder", model):
        initialize_maps(model.experts, settings.initializer, x_of, len(train), seed)
    model.compile(sgd(settings, len(train)), jit_compile=False)
    new = features.held_out
    seen, held_out = (map_batches(to_primary, maps) for maps in (train[: len(new)], new))
    autoencoder = load_model(run, "autoencoder")

    def after_epoch():
        known, new = (figures(model, x, settings.batch_size) for x in (seen, held_out))
        return {
            "val_loss": new["loss"],
            "val_relative_error": new["loss"],
            "val_free_energy": new["free_energy"],
            "free_energy_gap": new["free_energy"] - known["free_energy"],
            "val_probability_mean": new["probability_mean"],
        }

    def picture(path):
        x = held_out[:SHOWN]
        rows = [primary.to_features(row) for row in (x, one_step(x))]
        save_grid(path, [autoencoder.decode(row) for row in rows])

    last = run.fit("encoder", model, features.stream, settings.schedule, after_epoch, picture)

    def z_of(maps):
        return model.experts.route(primary(maps)).z

    z = save_rows(run, "encoder/z.npy", z_of, train, stays=False)
    if settings.whitening and model.trainable_variables:
        adapt_whitening(model, z, x_of)
    codes = save_rows(run, "encoder/codes.npy", model.whitening, z)
    save_arrays(run, "encoder/visited.npz", mean_direction=mean_directions(codes))
    save_model(run, "encoder", model)
    used = usage(codes, run.data.train.labels)
    found = worse_than_mean(held_out, last["val_relative_error"], features.mean)
    found += off_or_saturated(last["val_probability_mean"]) + one_winner(used["won"])
    if len(new) >= FEWEST:
        some = spread(len(train), CLUSTERED)
        groups = [winners(rows) for rows in (codes[some], map_batches(compiled(z_of), new))]
        pairs = (x_of(some), groups[0]), (held_out, groups[1])
        found += worse_than_clusters(*pairs, settings.capsules, seed)
    return {**last, "capsules": used, **warn(run, "encoder", found)}
