"""Settings of the parts that several models share: features of an autoencoder, and classifiers."""

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.training.settings import (
    Count,
    Momentum,
    NotNegative,
    Positive,
    Rate,
    Settings,
    TrainedPart,
)
from keras_capsule_poe.training.settings import Part as SettingsPart

# Minimum height and width of images that the convolutions of the autoencoder leave something of.
SMALLEST_IMAGE = 20


def feature_side(size):
    """Return the height or width of the feature map of images of a height or width."""
    outer, inner = 9 + (size - 1) % 2, 9
    return (size - outer + 1 - inner) // 2 + 1


class AutoencoderSettings(TrainedPart):
    """Settings of the convolutional autoencoder, see `ConvAutoencoder`.

    Attributes:
        filters: Filters of each convolution.
        dropout: Share of activations that dropout sets to zero.
        weight_decay: Share of the weights that a step of rate one takes off. It keeps the features
            in few directions.
    """

    filters: Count = 128
    dropout: Momentum = 0.1
    batch_size: Count = 32
    learning_rate: Rate = 2e-3
    weight_decay: NotNegative = 2.0


class PrimarySettings(SettingsPart):
    """Settings of the primary capsules, see `PrimaryCapsules`.

    Attributes:
        dim: Dimensions D of a primary capsule.
        center: Subtract the mean feature map.
        target_length: Mean length of a squashed primary capsule.
    """

    dim: Count = 8
    center: bool = True
    target_length: Positive = 0.14


class FeatureSettings(Settings):
    """Settings of a model of the features of an autoencoder."""

    STAGES = {"autoencoder": ("autoencoder",), "features": ("primary",)}
    OPTIONS = {"features-limit": "compute.features_limit"}

    autoencoder: AutoencoderSettings = AutoencoderSettings()
    primary: PrimarySettings = PrimarySettings()

    def idle(self):
        found = {}
        for name, part in self.parts.items():
            if getattr(part, "epochs", None) is not None:
                found[f"{name}.steps"] = f"{name}.epochs says how long"
        return found

    def smallest(self):
        return SMALLEST_IMAGE

    def check(self, image_shape=None):
        super().check(image_shape)
        if image_shape is None:
            return
        height, width = map(feature_side, image_shape[:2])
        if height * width * self.autoencoder.filters % self.primary.dim:
            shape = f"{height}x{width}x{self.autoencoder.filters}"
            raise ConfigError(
                f"primary.dim must divide the number of features, {shape}. "
                f"Received: {self.primary.dim}"
            )
