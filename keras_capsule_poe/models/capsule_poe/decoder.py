"""The capsule decoder: from expert capsules back to primary capsules, the encoder frozen."""

import keras
from keras import ops

from keras_capsule_poe.functions.norms import length
from keras_capsule_poe.functions.squash import squash, unsquash
from keras_capsule_poe.layers.capsule_poe import CapsulePoE
from keras_capsule_poe.models.contrastive import ContrastiveModel, relative_error
from keras_capsule_poe.models.randomness import StatelessSeed, replica_seed


@keras.saving.register_keras_serializable("keras_capsule_poe")
class CapsuleDecoder(ContrastiveModel):
    """Expert capsules (B, J, E) to primary capsules (B, I, D), the maps U learned by the decoder rule.

    Compile with an SGD optimizer and fit on pairs (expert capsules, primary capsules), both
    squashed. Routing runs from the J experts to the I primary capsules.

    Args:
        primaries: `CapsulePoE` with I capsules of D dimensions, or its config.
        feature_scale: float, factor on the primary capsules before the squash inside the
            decoder rule, undone by the call. The rule compares the experts of the data with
            those that U sends back; they agree in length only where sum_i |z_i|^2 is about as
            large as an active expert's |z_j|, which features alone are not.
        activity: float, the power of an expert's length that it counts with: each enters as
            |x_j|^a / sum_k |x_k|^a of itself, so that a capsule alone and one among many that are
            off decode alike. `None`: all count fully.
        offset: bool, whether an expert's length is one more of its coordinates. Its images then
            need not be centred on the mean of all, which its orientations average to.
        conditional: bool, whether the rule's second term keeps the data's experts.
        keep: int, how many experts of each image, drawn at random, stay while training; the
            others are zero. `None`: all. With few, single capsules learn to decode alone.
        seed: int.
        **kwargs: Base model arguments.

    Call arguments:
        inputs: Tensor (B, J, E), squashed expert capsules.

    Returns:
        Tensor (B, I, D), squashed primary capsules.

    Raises:
        ValueError: If `keep`, `feature_scale` or `activity` is not positive.

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), training of the decoder
    """

    def __init__(
        self,
        primaries,
        feature_scale=1.0,
        activity=None,
        offset=False,
        conditional=False,
        keep=None,
        seed=0,
        **kwargs,
    ):
        super().__init__(seed=seed, **kwargs)
        if isinstance(primaries, dict):
            primaries = keras.saving.deserialize_keras_object(primaries)
        if not isinstance(primaries, CapsulePoE):
            raise ValueError(
                f"`primaries` must be a CapsulePoE layer. Received: primaries={primaries!r}"
            )
        if keep is not None and keep < 1:
            raise ValueError(f"`keep` must be positive or None. Received: keep={keep!r}")
        if not feature_scale > 0:
            raise ValueError(
                f"`feature_scale` must be above zero. Received: feature_scale={feature_scale!r}"
            )
        self.primaries = primaries
        if activity is not None and not activity > 0:
            raise ValueError(
                f"`activity` must be above zero or None. Received: activity={activity!r}"
            )
        self.feature_scale = feature_scale
        self.activity = activity
        self.offset = offset
        self.conditional = conditional
        self.keep = keep

    def build(self, input_shape):
        if not self.primaries.built:
            batch, capsules, dim = input_shape
            self.primaries.build((batch, capsules, dim + int(self.offset)))
        self.built = True

    def call(self, inputs):
        z = self.primaries.route(self.weighted(inputs)).z / self.feature_scale
        return ops.cast(squash(z), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return self.primaries.compute_output_shape(input_shape)

    def weighted(self, capsules):
        """What the maps see of expert capsules (B, J, E): with `offset`, (B, J, E + 1)."""
        lengths = length(capsules, keepdims=True)
        if self.offset:
            capsules = ops.concatenate([capsules, ops.cast(lengths, capsules.dtype)], axis=-1)
        if self.activity is None:
            return capsules
        counted = lengths**self.activity
        share = counted / ops.maximum(ops.sum(counted, axis=1, keepdims=True), 1e-30)
        return capsules * ops.cast(share, capsules.dtype)

    def kept(self, capsules):
        """The experts that stay, per image the `keep` of the highest random rank."""
        if self.keep is None or self.keep >= capsules.shape[1]:
            return capsules
        seed = StatelessSeed(replica_seed(self.seed), self.optimizer.iterations)
        rank = keras.random.uniform(ops.shape(capsules)[:2], seed=seed)
        threshold = ops.top_k(rank, self.keep)[0][:, -1:]
        return capsules * ops.cast(rank >= threshold, capsules.dtype)[..., None]

    def train_step(self, data):
        capsules, primaries, _ = keras.utils.unpack_x_y_sample_weight(data)
        z = self.feature_scale * unsquash(primaries)
        inputs = self.weighted(self.kept(capsules))
        divergence = self.primaries.decoder_divergence(inputs, z, self.conditional)
        update = self.apply_ascent(
            self.primaries.kernel,
            divergence.gradient,
            self.primaries.regularization_gradient(),
        )
        return self._record(primaries, divergence, update)

    def test_step(self, data):
        capsules, primaries, _ = keras.utils.unpack_x_y_sample_weight(data)
        z = self.feature_scale * unsquash(primaries)
        inputs = self.weighted(capsules)
        divergence = self.primaries.decoder_divergence(inputs, z, self.conditional)
        return self._record(primaries, divergence, 0.0)

    def _record(self, primaries, divergence, update):
        decoded = squash(divergence.z_model / self.feature_scale)
        self.track(relative_error(decoded, primaries), update)
        return {metric.name: metric.result() for metric in self.metrics}

    def get_config(self):
        return {
            **super().get_config(),
            "primaries": keras.saving.serialize_keras_object(self.primaries),
            "feature_scale": self.feature_scale,
            "activity": self.activity,
            "offset": self.offset,
            "conditional": self.conditional,
            "keep": self.keep,
        }
