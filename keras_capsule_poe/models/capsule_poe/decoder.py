"""The capsule decoder: from expert capsules to primary capsules."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.core.numerics import (
    compiled,
    length,
    real_number,
    unsquash,
    whole_number,
)
from keras_capsule_poe.data import sequential_batches
from keras_capsule_poe.data.mapping import chunks, map_batches, spread
from keras_capsule_poe.former_names import without_removed
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.metrics import mean_error, relative_error
from keras_capsule_poe.models.base.contrastive import ContrastiveModel
from keras_capsule_poe.models.base.features import (
    SHOWN,
    Features,
    begin,
    load_rows,
    save_model,
    sgd,
)
from keras_capsule_poe.models.base.protocols import build_once, deserialized
from keras_capsule_poe.models.capsule_poe.codes import (
    adapt_shared,
    load_mixtures,
    mixture_of,
    save_mixture,
)
from keras_capsule_poe.models.capsule_poe.encoder import initial_maps, routing_arguments
from keras_capsule_poe.models.capsule_poe.layers import CapsulePoE, SharedCapsules
from keras_capsule_poe.training.sanity import warn, worse_than_mean

# Images that the shared capsules are fitted to, enough for some hundred dimensions, and the most
# bytes of their residuals, of which there are two copies.
SHARED_IMAGES, SHARED_BYTES = 20_000, 4e8
# Images whose codes the mixture describes, and how many are computed at once.
MIXED, AT_ONCE = 60_000, 500
# Images of which the contrast is compared, how often, and the largest factor.
CONTRAST_IMAGES, CONTRAST_STEPS, MAX_SCALE = 1_000, 4, 1.5


@keras.saving.register_keras_serializable("keras_capsule_poe")
class CapsuleDecoder(ContrastiveModel):
    """Decodes expert capsules to primary capsules, with maps U trained by `functions.decoder_rule`.

    Compile with an SGD optimizer. Fit on pairs of squashed expert and primary capsules from a
    frozen encoder. Routing runs from the J experts to the I primary capsules; with one
    routing iteration and `coefficient_sum="mean"` every coefficient is one.

    Args:
        primaries: `CapsulePoE` with I capsules of D dimensions, or its config.
        feature_scale: Float, a factor on the primary capsules before the squash inside the decoder
            rule. It makes the model's experts about as long as the data's. `call` divides it out.
        activity: Float a, or None. Scales expert j by |x_j|^a / sum_k |x_k|^a, so that one active
            expert and many are decoded alike.
        offset: Boolean, whether to append each expert's length to its coordinates. Images then
            need not be centred on the mean.
        conditional: Boolean, whether the second term of the rule keeps the experts of the data.
        bias_rate: Float, the learning rate of the bias relative to the maps.
        shared_capsules: Integer S, the capsules that code the residual of an image, see
            `SharedCapsules`; 0: none. `fit` does not change them.
        seed: Integer.
        **kwargs: `keras.Model` arguments.

    Call arguments:
        inputs: Tensor (B, J, E), squashed expert capsules.
        shared: Tensor (B, S, E), shared capsules; None: their mean, given the experts.

    Returns:
        Tensor (B, I, D), squashed primary capsules.

    Raises:
        ValueError: If `primaries` has a wrong type, or `feature_scale`, `activity` or `bias_rate`
            is not positive.
        RuntimeError: If `fit` runs on another backend than TensorFlow and JAX.

    Example:

    >>> from keras_capsule_poe import CapsulePoE
    >>> model = CapsuleDecoder(CapsulePoE(capsules=6, dim=4))
    >>> model.compile(keras.optimizers.SGD(0.1, momentum=0.5), jit_compile=False)
    >>> random = np.random.default_rng(0)
    >>> experts, primaries = random.uniform(0, 0.3, (8, 5, 3)), random.uniform(0, 0.3, (8, 6, 4))
    >>> history = model.fit(experts.astype("float32"), primaries.astype("float32"), verbose=0)
    >>> model(experts).shape
    TensorShape([8, 6, 4])

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), training of the decoder
    """

    def __init__(
        self,
        primaries: Serializable,
        feature_scale: float = 1.0,
        activity: float | None = None,
        offset: bool = False,
        conditional: bool = False,
        bias_rate: float = 1.0,
        shared_capsules: int = 0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(seed=seed, **kwargs)
        primaries = deserialized(primaries)
        if not isinstance(primaries, CapsulePoE):
            raise ValueError(
                f"`primaries` must be a CapsulePoE layer. Received: primaries={primaries!r}"
            )
        if not feature_scale > 0:
            raise ValueError(
                f"`feature_scale` must be above zero. Received: feature_scale={feature_scale!r}"
            )
        primaries.check_squash("units")
        self.primaries = primaries
        if activity is not None and not activity > 0:
            raise ValueError(
                f"`activity` must be above zero or None. Received: activity={activity!r}"
            )
        self.feature_scale = feature_scale
        self.activity = activity
        self.offset = offset
        self.conditional = conditional
        self.bias_rate = real_number("bias_rate", bias_rate, above=0)
        self.shared_capsules = whole_number("shared_capsules", shared_capsules, least=0)
        self.shared = None

    def build(self, input_shape):
        *capsules, dim = input_shape
        build_once(self.primaries, (*capsules, dim + int(self.offset)))
        if self.shared_capsules:
            self.shared = SharedCapsules(self.shared_capsules, dim, capsules[-1], name="shared")
            self.shared.build(self.primaries.compute_output_shape(input_shape))
        self.built = True

    def call(self, inputs, shared=None):
        z = self._decoded(inputs)
        if self.shared is not None:
            z = z + self.shared.decode(self.shared.expected(inputs) if shared is None else shared)
        return ops.cast(self.primaries.units.mean(z), self.compute_dtype)

    def _decoded(self, capsules):
        """Return primary capsules before the squash, (B, I, D), decoded from (B, J, E)."""
        return self.primaries.route(self.weigh(capsules)).z / self.feature_scale

    def code_shared(self, x, capsules):
        """Return the shared capsules (B, S, E) of primary capsules x (B, I, D), both squashed."""
        return self.shared(self.residual(x, capsules))

    def residual(self, x, capsules):
        """Return x (B, I, D) less what capsules (B, J, E) decode to, both before the squash."""
        return unsquash(x) - self._decoded(capsules)

    def compute_output_shape(self, input_shape):
        return self.primaries.compute_output_shape(input_shape)

    def weigh(self, capsules):
        """Apply `offset` and `activity` to experts (B, J, E); `offset` makes them (B, J, E + 1)."""
        lengths = length(capsules, keepdims=True)
        if self.offset:
            capsules = ops.concatenate([capsules, ops.cast(lengths, capsules.dtype)], axis=-1)
        if self.activity is None:
            return capsules
        counted = lengths**self.activity
        share = counted / ops.maximum(ops.sum(counted, axis=1, keepdims=True), 1e-30)
        return capsules * ops.cast(share, capsules.dtype)

    def train_step(self, data):
        pairs = self.images_of(data)
        means, _ = self.over_replicas(self._gradient_and_metrics)(pairs)
        update = self.apply_ascent(zip(self.primaries.learned, means["ascents"]))
        return self._record(means, ops.shape(pairs[1])[0], update)

    def test_step(self, data):
        pairs = self.images_of(data)
        return self._record(self._gradient_and_metrics(pairs)[0], ops.shape(pairs[1])[0], None)

    def _gradient_and_metrics(self, pairs, share=1.0):
        """Return batch means of the gradient and the error, of pairs (experts, primaries)."""
        capsules, primaries = pairs
        z = self.feature_scale * unsquash(primaries)
        inputs = self.weigh(capsules)
        divergence = self.primaries.decoder_divergence(inputs, z, self.conditional)
        decoded = self.primaries.units.mean(divergence.z_model / self.feature_scale)
        ascents = self.primaries.ascents(divergence, self.bias_rate)
        return {"ascents": ascents, "error": mean_error(decoded, primaries)}, {}

    def _record(self, means, images, update):
        self.track(means["error"], update, images)
        return self.results(update)

    @classmethod
    def from_config(cls, config):
        # Configs of older versions have a dropout of experts.
        return super().from_config(without_removed(config, "keep"))


def build_decoder(settings, primary_capsules):
    """Return the capsule decoder, built for I primary capsules."""
    decoder, encoder = settings.decoder, settings.encoder
    primaries = CapsulePoE(
        primary_capsules,
        settings.primary.dim,
        **routing_arguments(settings, "decoder"),
        coefficient_sum="mean",
        **initial_maps(decoder.weight_decay, settings.seed + 2),
        name="primaries",
    )
    model = CapsuleDecoder(
        primaries,
        feature_scale=decoder.feature_scale,
        activity=decoder.activity,
        offset=decoder.offset,
        conditional=decoder.conditional,
        shared_capsules=decoder.shared_capsules,
        seed=settings.seed,
        name="decoder",
    )
    model.build((None, encoder.capsules, encoder.dim))
    return model


def train_decoder(run, product_with):
    """Train the maps U from the codes of the encoder, which stays frozen, to primary capsules.

    Then the shared capsules and the mixture of codes are fitted. `product_with` returns the whole
    model of a run with given primary capsules, decoder and mixtures.
    """
    settings = run.settings.decoder
    features = Features(run)
    codes = load_rows(run, "encoder/codes.npy")
    model = build_decoder(run.settings, features.primary.capsules)
    begin(run, "decoder", model)
    rate = sgd(settings, len(codes), settings.min_learning_rate_fraction)
    model.compile(rate, jit_compile=False)
    # Shared codes need a mixture of this version.
    former = [] if model.shared_capsules else load_mixtures(run, "encoder/visited.npz")
    made_of = run, features.primary, model
    # While it trains there are no shared codes, and pictures need few Gaussians.
    no_shared = np.broadcast_to(np.float32(0), (len(codes), model.shared_capsules * codes.shape[2]))
    product = product_with(*made_of, *(former or [mixture_of(codes, no_shared, components=1)]))
    held_out = features.of(features.held_out)
    held_out_codes = map_batches(product.encoder, held_out)

    def after_epoch():
        decoded = model.predict(sequential_batches(held_out_codes, settings.batch_size), verbose=0)
        error = float(relative_error(decoded, held_out))
        return {"val_loss": error, "val_relative_error": error}

    def picture(path):
        original = product.from_visible(held_out[:SHOWN])
        decoded = product.decode(held_out_codes[:SHOWN])["images"]
        single = product.sample(len(original), seed=0, domain="posterior")["images"]
        save_grid(path, [original, decoded, single])

    def stream(**order):
        return features.stream(codes, **order)

    last = run.fit(
        "decoder", model, stream, settings.schedule, after_epoch, picture, whole=lambda: product
    )
    found = worse_than_mean(held_out, last["val_relative_error"], features.mean)
    if model.shared_capsules and model.trainable_variables:
        last |= fit_shared(model, features, codes, (held_out_codes, held_out))
    if not former:
        rows = spread(len(codes), MIXED)
        shared = shared_codes(model, features, codes, rows)
        number, seed = run.settings.codes.components, run.settings.seed
        mixture = mixture_of(np.asarray(codes[rows]), shared, number, seed)
        maps = features.train[spread(len(codes), CONTRAST_IMAGES)]
        # Where experts compete one capsule draws an image, and elsewhere a whole code does.
        single = run.settings.encoder.activation_prior_weight > 0
        last["scale"] = match_contrast(product_with(*made_of, mixture), maps, single)
        save_mixture(run, mixture)
    save_model(run, "decoder", model)
    return {**last, **warn(run, "decoder", found)}


def shared_codes(model, features, codes, rows):
    """Return the shared codes (n, S E) of some training images; without any, (n, 0)."""
    if model.shared is None:
        return np.zeros((len(rows), 0), "float32")
    of = compiled(lambda maps, z: model.code_shared(features.to_capsules(maps), z))
    pairs = ((features.train[some], codes[some]) for some in chunks(rows, AT_ONCE))
    return np.concatenate([map_batches(of, pair) for pair in pairs]).reshape(len(rows), -1)


def match_contrast(product, maps, single=True):
    """Scale the mixture of codes until draws have as much contrast as decoded feature maps.

    A decoder learns means and a mixture leaves out weak axes, so draws are paler than images. The
    draws are those of single capsules, or of whole codes. Return the factor.
    """

    def contrast(images):
        return float(np.std(images, axis=0).mean())

    kind = {"domain": "posterior"} if single else {"mode": "joint"}
    wanted = contrast(map_batches(compiled(product.from_features), maps))
    mixture, scale = product.visited, 1.0
    for _ in range(CONTRAST_STEPS):
        drawn = contrast(product.sample(len(maps), seed=0, **kind)["images"])
        bounds = 1 / MAX_SCALE, MAX_SCALE
        new_scale = float(np.clip(scale * wanted / max(drawn, 1e-30), *bounds))
        for part in (mixture.means, mixture.factors):
            part.assign(part * (new_scale / scale))
        scale = new_scale
    return scale


def most_images(primary):
    """Return how many images the shared capsules are fitted to, for `PrimaryCapsules`."""
    return min(SHARED_IMAGES, int(SHARED_BYTES / (4 * primary.capsules * primary.dim)))


def fit_shared(model, features, codes, held_out):
    """Fit the shared capsules to residuals of some training images.

    `held_out` are codes and primary capsules. Return the errors with and without shared capsules.
    """
    some = spread(len(codes), most_images(features.primary))
    own = np.asarray(codes[some])
    to_residual = compiled(lambda maps, z: model.residual(features.to_capsules(maps), z))
    residuals = map_batches(to_residual, (features.train[some], own))
    adapt_shared(model.shared, residuals, own)
    codes, x = held_out
    residuals = map_batches(compiled(model.residual), (x, codes))
    remaining = residuals - model.shared.decode(model.shared(residuals))
    errors = {"val_relative_error": remaining, "val_error_without_shared": residuals}
    decode = model.primaries.units.mean
    return {
        name: float(relative_error(decode(unsquash(x) - error), x))
        for name, error in errors.items()
    }
