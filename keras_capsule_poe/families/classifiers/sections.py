"""The settings that the networks of all classifiers have."""

from dataclasses import dataclass


@dataclass
class ClassifierSection:
    """Classes, the control, training.

    A `network` "cnn" is a control without capsules, of as many parameters as they would have had;
    then `units`, `dropout` and pooling count. `microbatch` images of a batch at a time have their
    gradients found, which are added up: less memory, the same step; None: all.
    `ema_momentum` is the share of the average of the weights that is left after a step, where an
    average is to be judged and saved; None: the weights are.
    """

    # What settings of words may be, for those that have options of their own.
    CHOICES = {
        "network": ("capsules", "cnn"),
        "optimizer": ("adam", "muon"),
        "augmentation": ("none", "shift", "efficient", "flip", "cifar", "norb"),
    }

    network: str = "capsules"
    classes: int = 10
    initial: str = "glorot"
    decoder: str = "none"
    reconstruction_weight: float = 0.0005
    units: int | None = None
    dropout: float = 0.5
    max_pooling: bool = True
    global_pooling: bool = False
    augmentation: str = "shift"
    shift: int = 2
    epochs: int | None = 5
    steps: int = 1400
    batch_size: int = 128
    microbatch: int | None = None
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    fall: str = "cosine"
    decay: float = 0.96
    decay_steps: int | None = 2000
    least_rate: float = 1e-6
    ema_momentum: float | None = None
    until_accuracy: float | None = None
    precision: str = "auto"

    @property
    def first_rate(self):
        """The learning rate at the start."""
        return self.learning_rate


def idle(section, net, of_capsules, counted):
    """Settings that mean nothing beside others, and why: a dict.

    Args:
        section: str, its name.
        net: `ClassifierSection`.
        of_capsules: Names of settings that a network without capsules has not.
        counted: Names of those that only say how many parameters it is to have.
    """
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
        if net.units is not None:
            found |= {f"{section}.{name}": f"{section}.units is given" for name in counted}
    if net.augmentation != "shift":
        leave_out("augmentation", "shift")
    if net.fall == "cosine":
        leave_out("fall", "decay", "decay_steps")
    if net.epochs is not None:
        found[f"{section}.steps"] = f"{section}.epochs is given"
    return found
