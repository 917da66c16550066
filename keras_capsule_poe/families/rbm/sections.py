"""The settings of a restricted Boltzmann machine of images, and its recipes."""

from dataclasses import dataclass

from keras_capsule_poe.training.family import Recipe


@dataclass
class RbmSection:
    """The machine, how its chains are run, and its training by contrastive divergence."""

    binarize: str | None = "stochastic"
    neurons: str = "bernoulli"
    hidden: int = 500
    centering: bool = True
    algorithm: str = "pcd"
    gibbs_steps: int = 1
    chains: int = 100
    chains_start: str = "data"
    temperatures: int = 10
    epochs: int | None = None
    steps: int = 12_000
    batch_size: int = 100
    learning_rate: float = 0.1
    momentum: float = 0.0
    final_rate: float = 0.01
    weight_decay: float = 0.0
    offset_rate: float = 0.01
    initial_stddev: float = 0.01
    burn_in: int = 100


SECTIONS = {"rbm": RbmSection}

# Sixteen hidden neurons have 65,536 states: every figure of the likelihood is exact.
_SMALL = {
    "rbm": {
        "binarize": "threshold",
        "hidden": 16,
        "steps": 30_000,
        "learning_rate": 0.5,
    }
}

RECIPES = {
    "pixels": Recipe("500 hidden neurons over pixels, persistent chains"),
    "small": Recipe("16 hidden neurons, whose likelihood is exact", _SMALL),
}


def idle(config):
    """Settings that mean nothing beside others, and why: a dict.

    Args:
        config: `RunConfig` of these sections.
    """
    found, rbm = {}, config["rbm"]
    if rbm.epochs is not None:
        found["rbm.steps"] = "rbm.epochs says how long"
    if rbm.neurons != "bernoulli":
        found["rbm.binarize"] = f"rbm.neurons is {rbm.neurons!r}"
    if rbm.algorithm == "cd":
        found["rbm.chains"] = "rbm.algorithm is 'cd', whose chains are as many as images a batch"
    if rbm.algorithm != "pt":
        found["rbm.temperatures"] = f"rbm.algorithm is {rbm.algorithm!r}"
    if not rbm.centering:
        found["rbm.offset_rate"] = "rbm.centering is false"
    return found
