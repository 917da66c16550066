"""Settings of all classifiers."""

from dataclasses import dataclass

from keras_capsule_poe.models.base import verdicts
from keras_capsule_poe.training.family import Family, Stage, lazily


@dataclass
class ClassifierSection:
    """Settings of a classifier: network, augmentation and training."""

    # Valid words of the settings that are also command-line options.
    CHOICES = {
        "network": ("capsules", "cnn"),
        "optimizer": ("adam", "muon"),
        "augmentation": ("none", "shift", "efficient", "flip", "cifar", "norb"),
    }

    ALIASES = {
        "initial": ("initializer", None),
        "fall": ("learning_rate_schedule", None),
        "decay": ("decay_rate", None),
        "least_rate": ("min_learning_rate", None),
    }

    network: str = "capsules"  # "cnn" is the baseline without capsules
    # Unless it is given, a run has as many classes as its images.
    classes: int = 10
    initializer: str = "glorot"
    decoder: str = "none"
    reconstruction_weight: float = 0.0005
    # The next four settings apply to the baseline only. Without `units` it has as many parameters
    # as the capsule network.
    units: int | None = None
    dropout: float = 0.5
    max_pooling: bool = True
    global_pooling: bool = False
    augmentation: str = "shift"
    shift: int = 2
    epochs: int | None = 5
    steps: int = 1400
    batch_size: int = 128
    # Images per gradient accumulation step, to save memory. None: the whole batch.
    microbatch: int | None = None
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    learning_rate_schedule: str = "cosine"
    decay_rate: float = 0.96
    decay_steps: int | None = 2000
    min_learning_rate: float = 1e-6
    # Decay of the weight average, which is evaluated and saved. None: no average.
    ema_momentum: float | None = None
    until_accuracy: float | None = None
    precision: str = "auto"

    @property
    def first_rate(self):
        """The initial learning rate."""
        return self.learning_rate


def idle(section, net, of_capsules, counted):
    """Return the settings without effect, each with the reason (a dict)."""
    found = {}

    def leave_out(name, *names):
        why = f"{section}.{name} is {getattr(net, name)!r}"
        found.update({f"{section}.{left}": why for left in names})

    if net.network == "capsules":
        leave_out("network", "units", "dropout", "max_pooling", "global_pooling")
        if net.decoder == "none":
            leave_out("decoder", "reconstruction_weight")
    else:
        leave_out("network", "reconstruction_weight", *of_capsules)
        # `counted` settings only set the number of parameters of the baseline.
        if net.units is not None:
            found |= {f"{section}.{name}": f"{section}.units is given" for name in counted}
    if net.augmentation != "shift":
        leave_out("augmentation", "shift")
    if net.learning_rate_schedule == "cosine":
        leave_out("learning_rate_schedule", "decay_rate", "decay_steps")
    if net.epochs is not None:
        found[f"{section}.steps"] = f"{section}.epochs is given"
    return found


def classifier_family(name, text, section, module, options, **parts):
    """Return a classifier's `Family`, with one training stage called `section` and an export."""
    labels = lazily("keras_capsule_poe.models.base.classifier_training:class_labels")

    def fits(config, data):
        for images in (data.train, data.held_out):
            labels(images, config[section].classes, section)

    train = Stage(
        section,
        lazily(f"{module}:{section}"),
        section=section,
        writes=(f"{section}/model.keras",),
        fits=fits,
    )
    export = Stage(
        "export",
        lazily(f"{module}:export"),
        writes=("model.keras",),
        pictures=("reconstructions.png", "traverse.png"),
        alone=True,
    )
    # Stereo pairs of toys or solids, augmented as in the code of Sabour et al.
    stereo = {f"{section}.augmentation": "norb"}
    return Family(
        name=name,
        text=text,
        verdict=verdicts.accuracy,
        stages=(train, export),
        labelled=True,
        options={name: f"{section}.{name.replace('-', '_')}" for name in options},
        check=lazily(f"{module}:check"),
        outline=lazily(f"{module}:outline"),
        smallest=lazily(f"{module}:smallest"),
        load=lazily(f"{module}:load"),
        suits={"smallnorb": {"image_size": (48, 48), **stereo}, "viewpoints": stereo},
        **parts,
    )
