"""Settings of the parts that several models share: features of an autoencoder, and classifiers."""

from typing import Annotated, ClassVar, Literal

import pydantic

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.training.settings import (
    Count,
    Momentum,
    NotNegative,
    Positive,
    Preset,
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
        feature_noise: Gaussian noise on the features in training, as a multiple of the standard
            deviation over the features of an image.
    """

    filters: Count = 128
    feature_noise: NotNegative = 0.0
    batch_size: Count = 32
    learning_rate: Rate = 2e-3


class PrimarySettings(SettingsPart):
    """Settings of the primary capsules, see `PrimaryCapsules`.

    Attributes:
        dim: Dimensions D of a primary capsule.
        center: Subtract the mean feature map.
        target_length: Root mean square of the length of a primary capsule, before the squash.
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


# Augmentations by random windows, with the central one in evaluation: the height of a window, and
# that of the images, or None.
WINDOWS = {"cifar": (24, None), "norb": (32, 48)}


class ClassifierPart(TrainedPart):
    """Settings of a network that is trained on labels.

    Attributes:
        network: Network of `capsules`, or `cnn`, the baseline without capsules.
        classes: Number of classes. By default that of the images.
        published_code: Differ from the paper as the code of its authors does.
        decoder: Form of the decoder that makes images from the capsule of a class.
        reconstruction_weight: Weight of the squared error of the decoded image, summed over its
            pixels.
        units: Units of the first dense layer of the baseline, which then has no max pooling, as in
            Sabour et al. None: as many as give it the parameters of the capsule network.
        augmentation: Random changes of training images: `shift` by up to two pixels, `efficient`
            as for Efficient-CapsNet, `flip` left to right, windows of 24x24 (`cifar`) or 32x32
            pixels (`norb`), or `none`.
        optimizer: Optimizer, `adam` or `muon`.
        learning_rate_schedule: Decay of the learning rate, `cosine` or `exponential`.
        decay_rate: Factor of `exponential` decay.
        decay_steps: Steps in which the rate falls by this factor. None: an epoch, down to a tenth
            of the first rate.
        ema_momentum: Decay of an average of the weights, which is evaluated and saved; None: no
            average.
        until_accuracy: Accuracy on held-out images at which training ends after an epoch.
    """

    least: ClassVar[float] = 0.07

    network: Literal["capsules", "cnn"] = "capsules"
    classes: Count = 10
    published_code: bool = False
    decoder: Literal["none", "dense"] = "none"
    reconstruction_weight: float = 0.0005
    units: Count | None = None
    augmentation: Literal["none", "shift", "efficient", "flip", "cifar", "norb"] = "shift"
    steps: Count = 1400
    optimizer: Literal["adam", "muon"] = "adam"
    learning_rate: Rate = 1e-3
    learning_rate_schedule: Literal["cosine", "exponential"] = "cosine"
    decay_rate: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.96
    decay_steps: Count | None = 2000
    ema_momentum: Momentum | None = None
    until_accuracy: Annotated[float, pydantic.Field(gt=0, le=1)] | None = None

    @property
    def initializer(self):
        """Kind of the initial weights."""
        return "official" if self.published_code else "glorot"


def presets_of(part, presets):
    """Return presets from a dict from their names to text and settings of a part."""
    return {name: Preset(text, {part: values}) for name, (text, values) in presets.items()}


def options_of(part, *names):
    """Return the options of the command line for settings of a part, which have their names."""
    return {name: f"{part}.{name.replace('-', '_')}" for name in names}


def norb_of(part):
    """Return `SUITS` for stereo pairs of toys or solids, augmented as by Sabour et al."""
    augmented = {f"{part}.augmentation": "norb"}
    return {"smallnorb": {"image_size": (48, 48), **augmented}, "viewpoints": augmented}


class ClassifierSettings(Settings):
    """Settings of a classifier with one trained stage, whose part is the network.

    Attributes:
        OF_CAPSULES: Settings of the network that the baseline does not have.
        COUNTED: Settings that the baseline only reads to have as many parameters.
    """

    LABELLED = True
    OF_CAPSULES: ClassVar[tuple[str, ...]] = ()
    COUNTED: ClassVar[tuple[str, ...]] = ()

    @property
    def stage(self):
        """Name of the stage that trains the network, and of the part with its settings."""
        return next(iter(self.STAGES))

    @property
    def net(self):
        """The `ClassifierPart`."""
        return getattr(self, self.stage)

    @property
    def normalizes_batches(self):
        """True if the network has batch normalization."""
        return False

    def smallest(self):
        window, whole = WINDOWS.get(self.net.augmentation, (0, None))
        return whole or window

    def leave_out(self, name, *names):
        """Return `idle` for settings of the network, because of the value of its setting `name`."""
        why = f"{self.stage}.{name} is {getattr(self.net, name)!r}"
        return {f"{self.stage}.{left}": why for left in names}

    def idle(self):
        net, found = self.net, {}
        if net.network == "capsules":
            found |= self.leave_out("network", "units")
            if net.decoder == "none":
                found |= self.leave_out("decoder", "reconstruction_weight")
        else:
            found |= self.leave_out("network", "reconstruction_weight", *self.OF_CAPSULES)
            if net.units is not None:
                found |= self.leave_out("units", "decoder", *self.COUNTED)
        if net.learning_rate_schedule == "cosine":
            found |= self.leave_out("learning_rate_schedule", "decay_rate", "decay_steps")
        if net.epochs is not None:
            found |= self.leave_out("epochs", "steps")
        return found

    def check(self, image_shape=None):
        kind = self.net.augmentation
        if image_shape and kind in WINDOWS:
            window, whole = WINDOWS[kind]
            if min(image_shape[:2]) < window or (whole and {*image_shape[:2]} != {whole}):
                wanted = f"{whole}x{whole}" if whole else f"at least {window}x{window}"
                raise ConfigError(
                    f"{self.stage}.augmentation {kind!r} is for images of {wanted} pixels; "
                    f"`image_size` resizes them. Received: {image_shape[0]}x{image_shape[1]}"
                )
        super().check(image_shape)
        if self.compute.microbatch and self.normalizes_batches:
            raise ConfigError(
                "compute.microbatch must be none where batches are normalized, which must be for "
                f"all of their images. Received: {self.compute.microbatch}"
            )

    def check_images(self, data):
        # It imports NumPy, which would slow down `capspoe --help`.
        from keras_capsule_poe.data.labels import check_classifier_labels

        check_classifier_labels(data, self.net.classes)
