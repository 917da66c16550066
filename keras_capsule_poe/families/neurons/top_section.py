"""Settings of the optional second layer over the expert neurons."""

from dataclasses import dataclass


@dataclass
class TopSection:
    """Settings of the Boltzmann machine for joint samples; off if `capsules` is 0."""

    capsules: int = 0
    dim: int = 16
    algorithm: str = "pcd"
    passes: int = 1
    chains: int = 128
    epochs: int | None = None
    steps: int = 2000
    batch_size: int = 128
    learning_rate: float = 0.05
    momentum: float = 0.5
    final_rate: float = 0.05
    weight_decay: float = 1e-4
    offset_rate: float = 0.01
    initial_stddev: float = 0.01


def has_top(config):
    """Return whether the run has a second layer."""
    return config["top"].capsules != 0


def idle_top(config):
    """Return the second layer's settings without effect, each with the reason (a dict)."""
    top = config["top"]
    if not has_top(config):
        names = (name for name in vars(top) if name != "capsules")
        return {f"top.{name}": "top.capsules is 0" for name in names}
    if top.algorithm == "cd":
        return {"top.chains": "top.algorithm is 'cd'"}
    return {}
