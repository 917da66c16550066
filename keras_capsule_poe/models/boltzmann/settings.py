"""Settings and presets of a restricted Boltzmann machine of images."""

from typing import Annotated, Literal

import pydantic

from keras_capsule_poe.models.base.settings import FeatureSettings, options_of
from keras_capsule_poe.training.settings import (
    Count,
    Iterations,
    Momentum,
    NotNegative,
    Preset,
    Rate,
    TrainedPart,
)


class MachineSettings(TrainedPart):
    """Settings of the machine and of its training, see `HarmoniumModel`.

    Attributes:
        visible: The visible neurons are `pixels`, or the `features` of an autoencoder.
        binarize: How pixels become zeros and ones: `stochastic` draws each with its value as
            probability at each step, `threshold` compares it with a half; None keeps the values.
        neurons: Visible neurons of pixels: `bernoulli` for zeros and ones, `unit` for values from
            zero to one, or `gaussian`. Those of features are Gaussian.
        hidden: Number of hidden neurons.
        algorithm: `cd` starts the chains at the images, `pcd` keeps persistent chains, `pt` keeps
            them at several temperatures that exchange states.
        cd_steps: The k of CD-k.
        persistent_chains: Number of persistent chains, at each temperature. Sampling starts from
            them.
        temperatures: Number of temperatures of `pt`.
        momentum: Momentum of gradient descent.
        weight_decay: Multiple of the maps that is subtracted from their gradient.
    """

    visible: Literal["pixels", "features"] = "pixels"
    binarize: Literal["stochastic", "threshold"] | None = "stochastic"
    neurons: Literal["bernoulli", "unit", "gaussian"] = "bernoulli"
    hidden: Count = 500
    algorithm: Literal["cd", "pcd", "pt"] = "pcd"
    cd_steps: Iterations = 1
    persistent_chains: Count = 100
    temperatures: Annotated[int, pydantic.Field(ge=2)] = 10
    steps: Count = 24_000
    batch_size: Count = 100
    learning_rate: Rate = 0.05
    momentum: Momentum = 0.0
    weight_decay: NotNegative = 0.0

    @property
    def visible_units(self):
        """Kind of the machine's visible neurons."""
        return "gaussian" if self.visible == "features" else self.neurons

    @property
    def binarization(self):
        """How values become zeros and ones, or None."""
        return self.binarize if self.visible_units == "bernoulli" else None


# Sixteen hidden units have 65,536 states, which can be enumerated: the likelihood is exact.
_SMALL = {
    "rbm": {"binarize": "threshold", "hidden": 16, "steps": 30_000, "learning_rate": 0.5},
}

# As many maps as a product of expert capsules: a baseline of equal size.
_FEATURES = {
    "rbm": {
        "visible": "features",
        "hidden": 320,
        "learning_rate": 0.002,
        "momentum": 0.5,
        "steps": 4_000,
    }
}


class BoltzmannSettings(FeatureSettings):
    """Settings of an `ImageBoltzmannMachine`: its parts, presets and stages of training."""

    MODEL = "rbm"
    TEXT = "a restricted Boltzmann machine, with a likelihood and a Gibbs sampler"
    STAGES = {**FeatureSettings.STAGES, "rbm": ("rbm",), "export": ()}
    PRESETS = {
        "pixels": Preset("500 hidden neurons over pixels, persistent chains"),
        "small": Preset("16 hidden neurons, whose likelihood is exact", _SMALL),
        "features": Preset("320 hidden neurons over the features of an autoencoder", _FEATURES),
    }
    OPTIONS = {
        **FeatureSettings.OPTIONS,
        **options_of("rbm", "visible", "binarize", "neurons", "hidden", "algorithm", "cd-steps"),
        "chains": "rbm.persistent_chains",
    }

    rbm: MachineSettings = MachineSettings()

    @property
    def has_features(self):
        """True if the visible neurons are the features of an autoencoder."""
        return self.rbm.visible == "features"

    @property
    def stages(self):
        left_out = () if self.has_features else FeatureSettings.STAGES
        return {name: parts for name, parts in self.STAGES.items() if name not in left_out}

    def idle(self):
        found, rbm = super().idle(), self.rbm
        if self.has_features:
            found |= dict.fromkeys(("rbm.binarize", "rbm.neurons"), "rbm.visible is 'features'")
        else:
            names = ["compute.features_limit", "compute.precision"]
            for part in ("autoencoder", "primary"):
                names += [f"{part}.{name}" for name in type(getattr(self, part)).model_fields]
            found |= dict.fromkeys(names, "rbm.visible is 'pixels'")
            if rbm.neurons != "bernoulli":
                found["rbm.binarize"] = f"rbm.neurons is {rbm.neurons!r}"
        if rbm.algorithm == "cd":
            why = "rbm.algorithm is 'cd', whose chains are as many as images a batch"
            found["rbm.persistent_chains"] = why
        if rbm.algorithm != "pt":
            found["rbm.temperatures"] = f"rbm.algorithm is {rbm.algorithm!r}"
        return found

    def smallest(self):
        return super().smallest() if self.has_features else None
