"""Settings and presets of a product of expert capsules."""

from typing import Annotated, Any, Literal

import pydantic

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.models.base.settings import FeatureSettings
from keras_capsule_poe.training.settings import (
    Count,
    Fraction,
    Iterations,
    Momentum,
    NotNegative,
    Part,
    Positive,
    Preset,
    Rate,
    RegisteredClass,
    TrainedPart,
)


class RoutedPart(TrainedPart):
    """Settings of a layer that is routed, and trained by contrastive divergence.

    Attributes:
        routing_iterations: Iterations, counted as Sabour et al. do: with one the coupling
            coefficients stay uniform.
        agreement_scale: Factor on the agreements in the routing logits.
        softmax_over: What the coefficients of the other compete over, `outputs` or `inputs`.
        momentum: Momentum of gradient descent.
        weight_decay: Share of the weights that a step of rate one takes off.
    """

    routing_iterations: Iterations = 4
    agreement_scale: float = 0.1
    softmax_over: Literal["outputs", "inputs"] = "outputs"
    momentum: Momentum = 0.9
    weight_decay: NotNegative = 1e-3


class EncoderSettings(RoutedPart):
    """Settings of the capsule encoder with maps W, see `CapsuleEncoder` and `CapsulePoE`.

    Attributes:
        capsules: Number J of capsules.
        dim: Dimensions E of a capsule.
        coefficient_sum: Sum of the coupling coefficients of a softmax, or `mean`: their mean is
            one.
        initializer: How the maps start: principal directions (`principal`) or images (`clusters`)
            of clusters of the images, random images (`random`) or noise.
        activation_prior_weight: Weight of log |z_j|^2 in the routing logits. It makes experts
            compete for the whole image.
        cd_steps: The k of CD-k.
        load_balancing: Step of the routing bias that keeps all experts in use; 0: off.
        use_bias: Give each expert a bias.
        bias_rate: Learning rate of the biases, as a multiple of that of the maps.
        whitening: Whiten each expert's codes: turn and scale them to unit variance.
        experts_class: Subclass of `CapsulePoE` for the experts, with units or a router of its own;
            None: `CapsulePoE`. A class that is registered with Keras, or its registered name.
        encoder_class: Subclass of `CapsuleEncoder` for the encoder, likewise.
    """

    capsules: Count = 20
    dim: Count = 16
    coefficient_sum: Positive | Literal["mean"] = 3.0
    learning_rate: Rate = 0.2
    initializer: Literal["principal", "clusters", "random", "noise"] = "principal"
    activation_prior_weight: NotNegative = 2.0
    cd_steps: Iterations = 1
    load_balancing: Fraction = 0.03
    use_bias: bool = False
    bias_rate: Positive = 1.0
    whitening: bool = True
    experts_class: RegisteredClass | None = None
    encoder_class: RegisteredClass | None = None


class DecoderSettings(RoutedPart):
    """Settings of the capsule decoder with maps U, see `CapsuleDecoder`.

    Attributes:
        feature_scale: Factor on the features that the decoder learns.
        activity: Exponent of the weights of active capsules; None: all have the weight one.
        offset: Give the decoder the length of each capsule as one more coordinate.
        conditional: Keep the expert capsules of the data in the second term of the rule.
        shared_capsules: Number of capsules that do not compete and code the residual, the image
            less what its experts decode to; 0: none.
        min_learning_rate_fraction: Last learning rate, as a fraction of the first.
    """

    softmax_over: Literal["outputs", "inputs"] = "inputs"
    learning_rate: Rate = 0.5
    weight_decay: NotNegative = 1e-6
    min_learning_rate_fraction: Fraction = 0.1
    feature_scale: Positive = 1.0
    activity: Positive | None = None
    offset: bool = True
    conditional: bool = True
    shared_capsules: Annotated[int, pydantic.Field(ge=0)] = 8


class CodesSettings(Part):
    """Settings of the mixtures that describe the codes of the training images.

    Attributes:
        components: Gaussians of the codes of each capsule's images, which the domain `posterior`
            and the mode `joint` draw from. Few images get fewer.
    """

    components: Count = 200


_REPRESENTATION: dict[str, Any] = {
    "primary": {"target_length": 0.35},
    "encoder": {
        "coefficient_sum": 5.0,
        "steps": 450,
        "learning_rate": 0.05,
        "routing_iterations": 1,
        "activation_prior_weight": 0.0,
        "load_balancing": 0.0,
        "initializer": "random",
    },
    "decoder": {
        "routing_iterations": 1,
        "steps": 1400,
        "learning_rate": 0.22,
        "weight_decay": 1e-4,
        "feature_scale": 0.2,
        "shared_capsules": 0,
    },
}

_DETAIL: dict[str, Any] = {"encoder": {"capsules": 40}, "decoder": {"shared_capsules": 16}}

_PAPER: dict[str, Any] = {
    "primary": {"center": False, "target_length": 0.2},
    "encoder": {
        "softmax_over": "inputs",
        "coefficient_sum": "mean",
        "steps": 3000,
        "batch_size": 16,
        "learning_rate": 0.4,
        "momentum": 0.5,
        "weight_decay": 1e-4,
        "activation_prior_weight": 0.0,
        "load_balancing": 0.0,
        "initializer": "noise",
        "whitening": False,
    },
    "decoder": {
        "steps": 900,
        "batch_size": 64,
        "learning_rate": 0.1,
        "momentum": 0.5,
        "feature_scale": 0.47,
        "weight_decay": 1e-3,
        "offset": False,
        "conditional": False,
        "shared_capsules": 0,
    },
}

# The paper's model with the expert bias that its future work proposes.
_AFFINE = {**_PAPER, "encoder": {**_PAPER["encoder"], "use_bias": True, "bias_rate": 0.3}}


class CapsuleSettings(FeatureSettings):
    """Settings of a `ProductOfExpertCapsules`: its parts, presets and stages of training."""

    MODEL = "capsules"
    TEXT = "a product of expert capsules, trained without labels by contrastive divergence"
    STAGES = {
        **FeatureSettings.STAGES,
        "encoder": ("encoder",),
        "decoder": ("decoder", "codes"),
        "export": (),
    }
    PRESETS = {
        "generation": Preset("experts compete for whole images, and single capsules draw images"),
        "representation": Preset(
            "all capsules code every image, for reconstruction and classification", _REPRESENTATION
        ),
        "detail": Preset(
            "twice as many capsules, also of those that all images share: codes keep more of an "
            "image, and training takes a third longer",
            _DETAIL,
        ),
        # Only the units of the learning rates differ from the paper.
        "paper": Preset(
            "the model as printed in the paper: whole codes are decoded well, single capsules draw "
            "little",
            _PAPER,
        ),
        "affine": Preset(
            "the model of the paper with expert biases, which separate images from negatives; "
            "single capsules draw little",
            _AFFINE,
        ),
    }

    encoder: EncoderSettings = EncoderSettings()
    decoder: DecoderSettings = DecoderSettings()
    codes: CodesSettings = CodesSettings()

    @classmethod
    def from_dict(cls, values):
        # Models of earlier versions have no shared capsules.
        if "decoder" in values:
            values = {**values, "decoder": {"shared_capsules": 0, **values["decoder"]}}
        return super().from_dict(values)

    def idle(self):
        found, encoder = super().idle(), self.encoder
        for name in ("encoder", "decoder"):
            if getattr(self, name).routing_iterations == 1:
                found[f"{name}.agreement_scale"] = f"{name}.routing_iterations is 1"
        if encoder.routing_iterations == 1:
            why = "encoder.routing_iterations is 1"
            found["encoder.activation_prior_weight"] = why
        if not encoder.use_bias:
            found["encoder.bias_rate"] = "encoder.use_bias is off"
        if encoder.softmax_over == "inputs":
            why = "encoder.softmax_over is 'inputs', where the softmax cancels it"
            found |= {"encoder.activation_prior_weight": why, "encoder.load_balancing": why}
        return found

    def check(self, image_shape=None):
        super().check(image_shape)
        if self.encoder.experts_class or self.encoder.encoder_class:
            # Before the parts that come first are trained. Imported here because it needs Keras.
            from keras_capsule_poe.models.capsule_poe.encoder import new_encoder

            new_encoder(self)
        if self.primary.target_length > 1:
            raise ConfigError(
                "primary.target_length must be at most 1: the rule of the decoder turns back at "
                f"longer vectors. Received: {self.primary.target_length:g}"
            )
