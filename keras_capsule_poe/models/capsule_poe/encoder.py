"""The capsule encoder: expert capsules trained by contrastive divergence."""

from typing import Any

import keras
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.core.numerics import real_number, share, whole_number
from keras_capsule_poe.core.units import free_energy
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.metrics import (
    ExpertUsage,
    OrientationConcentration,
    expert_usage,
    mean_error,
)
from keras_capsule_poe.models.base.contrastive import ContrastiveModel
from keras_capsule_poe.models.base.protocols import build_once, deserialized
from keras_capsule_poe.models.capsule_poe.layers import CapsulePoE, ExpertFrames


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class CapsuleEncoder(ContrastiveModel):
    """Encodes primary capsules to expert capsules, with maps W trained without labels or autodiff.

    Compile with an SGD optimizer. Fit on batches of squashed primary capsules. Each step applies
    the gradient of CD-k at the dynamic routing of the data (Algorithm 1). `evaluate` reports CD-1.

    Args:
        experts: `CapsulePoE`, or its config.
        load_balancing: Float l in `[0, 1]`, the rate of load balancing. Each step adds
            `l (1 - usage_j)` to the routing bias, where a balanced usage is one. Zero turns it
            off. It needs experts with `use_routing_bias=True`.
        bias_rate: Float, the learning rate of the experts' bias relative to the maps.
        cd_steps: Integer, the k of CD-k.
        amplitude: Boolean, whether codes have an amplitude, and E + 1 dimensions.
        seed: Integer.
        **kwargs: `keras.Model` arguments.

    Call arguments:
        inputs: Tensor (B, I, D), squashed primary capsules.

    Returns:
        Tensor (B, J, E), or (B, J, E + 1) with `amplitude`: squashed expert capsules, whitened
        after `whitening.adapt` (see `ExpertFrames`). Their lengths are probabilities.

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
        amplitude: bool = False,
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
        self.experts = experts
        self.whitening = ExpertFrames(amplitude, dtype="float32", name="frames")
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

    def training_step(self, data):
        x, _ = self.images_of(data)
        means, _ = self.over_replicas(self._means, x)
        update = self.apply_ascent(zip(self.experts.learned, means["ascents"]))
        if self.load_balancing and self.trains(self.experts.kernel):
            more = self.load_balancing * (1 - means["usage"])
            self.experts.routing_bias.assign_add(more)
        return self._record(means, ops.shape(x)[0], update)

    def testing_step(self, data):
        x, _ = self.images_of(data)
        return self._record(self._means(x, cd_steps=1)[0], ops.shape(x)[0], None)

    def _means(self, x, _share=1.0, cd_steps=None):
        """Return batch means of the gradient and the metrics for primary capsules (B, I, D)."""
        cd_steps = cd_steps or self.cd_steps
        divergence = self.experts.contrastive_divergence(x, cd_steps=cd_steps)
        units, z = self.experts.units, divergence.z
        p = units.probability(z)
        means = {
            "ascents": self.experts.ascents(divergence, self.bias_rate),
            "usage": expert_usage(p),
            "error": mean_error(divergence.reconstruction, x),
            "free_energy": ops.mean(free_energy(z, units)),
            "probability": ops.mean(p, axis=0),
            "probability_squared": ops.mean(ops.square(p), axis=0),
            "orientations": self.concentration.means(units.mean(z)),
        }
        return means, {}

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

    def get_config(self):
        return {
            **super().get_config(),
            "experts": keras.saving.serialize_keras_object(self.experts),
            "load_balancing": self.load_balancing,
            "bias_rate": self.bias_rate,
            "cd_steps": self.cd_steps,
            "amplitude": self.whitening.amplitude,
        }

    @classmethod
    def from_config(cls, config):
        # Configs of older versions have an annealed activation prior.
        config = {key: config[key] for key in config if key not in ("prior_start", "prior_steps")}
        return super().from_config(config)
