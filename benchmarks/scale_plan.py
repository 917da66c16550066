"""What training on more images and more machines than are at hand would cost, by simulation.

Of each stage of `capsules`: operations and parameters as in `capspoe train --dry-run`, at the rate
of this machine's products (or `--rate`, of another, in float32); each replica takes `--batch`
images a step, and epochs are as many as the recipe has. A step is simulated as it is done: replicas
compute, each as long as its share of luck makes it (`--jitter`), wait for the slowest, add up their
means in a ring, and take the next batch, of which every process reads all images while the last
step runs (`--shared-input`: each its own). A machine that fails, once in `--mtbf` hours, costs all
of them half the time between checkpoints and a start. Machines have one replica.

The columns: seconds a step, of them computing and adding up; images a second over those of as
many machines that need not wait; hours. Then what lies on disk and in the memory of each process.

Usage: python benchmarks/scale_plan.py [--images N] [--machines N ...] [--rate FLOPS]
           [--bandwidth BYTES] [--disk BYTES] [--shared-input] [--recipe NAME]
"""

import argparse
import dataclasses
import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np

from keras_capsule_poe.families import get
from keras_capsule_poe.training import RunConfig
from keras_capsule_poe.training.plan import product_rate

SHAPE, HELD_OUT = (28, 28, 1), 1_000
STEPS, AHEAD = 2_000, 2
CHECKPOINT, START = 60.0, 30.0
# Labels and the order of an epoch, int64 each; codes of float32.
KNOWN, FLOAT = 16, 4


@dataclasses.dataclass(frozen=True)
class Network:
    """What machines add up means over.

    Attributes:
        bandwidth: float, bytes a second of a machine's link.
        latency: float, seconds of a message.
    """

    bandwidth: float = 1.25e9
    latency: float = 50e-6

    def sum_seconds(self, size, machines):
        """Seconds of a ring that adds up `size` bytes: each sends nearly all of them twice.

        >>> Network(bandwidth=1e6, latency=0.0).sum_seconds(1e6, 2)
        1.0
        >>> Network().sum_seconds(1e6, 1)
        0.0
        """
        messages = 2 * (machines - 1)
        return messages * (size / machines / self.bandwidth + self.latency)


def step_seconds(compute, exchange, read, machines, jitter=0.05, seed=0):
    """Mean seconds of a simulated step.

    Args:
        compute: float, seconds that a replica computes, on average.
        exchange: float, seconds that all take to add up.
        read: float, seconds that reading a batch takes; `AHEAD` batches are read ahead.
        machines: int.
        jitter: float, the standard deviation of the logarithm of the computing time.
        seed: int.

    Examples:

    >>> step_seconds(1.0, 0.5, 0.0, machines=3, jitter=0.0)
    1.5
    >>> step_seconds(1.0, 0.5, 4.0, machines=3, jitter=0.0)  # Reading is what one waits for.
    4.0
    """
    random = np.random.default_rng(seed)
    luck = np.exp(jitter * random.normal(size=(STEPS, machines)) - jitter**2 / 2)
    slowest = compute * luck.max(axis=1)
    ready, taken, ended = 0.0, [0.0] * AHEAD, 0.0
    first = None
    for k in range(STEPS):
        # A place in the queue is free when the batch that had it is taken.
        ready = max(ready, taken[k % AHEAD]) + read
        taken[k % AHEAD] = begun = max(ended, ready)
        ended = begun + slowest[k] + exchange
        first = ended if first is None else first
    return round(float(ended - first) / (STEPS - 1), 9)


def failing_share(machines, mtbf):
    """Share of the time that failures cost; beyond one nothing is ever done.

    >>> round(failing_share(1000, 10_000.0), 4)
    0.0017
    """
    return machines * (CHECKPOINT / 2 + START) / (3600 * mtbf)


def stage_row(stage, config, parameters, args, machines):
    """Figures of a stage on so many machines, a dict; hours are of the whole stage."""
    cost = stage.cost(config, SHAPE, args.images, HELD_OUT)
    of_image = cost.flops / (args.images * cost.epochs)
    compute = of_image * args.batch / (args.rate * cost.share)
    size = FLOAT * parameters.get(stage.name, 0)
    # Features are computed in shards that nobody waits for.
    network = Network(args.bandwidth, args.latency)
    exchange = network.sum_seconds(size, machines) if size else 0.0
    jitter = args.jitter if size else 0.0
    batches = 1 if args.shared_input else machines
    read = args.batch * batches * math.prod(SHAPE) / args.disk
    seconds = step_seconds(compute, exchange, read, machines, jitter)
    steps = math.ceil(args.images * cost.epochs / (args.batch * machines))
    return {
        "step": seconds,
        "computing": compute,
        "adding": exchange,
        "reading": read,
        "efficiency": compute / seconds,
        "hours": steps * seconds / 3600 / (1 - failing_share(machines, args.mtbf)),
    }


def storage(config, args):
    """Terabytes on disk, and gigabytes in the memory of each process, by what takes them."""
    shapes, _ = config.family.outline(config, SHAPE)
    numbers = math.prod(shapes["expert capsules"])
    costs = [s.cost(config, SHAPE, args.images, HELD_OUT) for s in config.stages if s.cost]
    disk = {
        "images": args.images * math.prod(SHAPE) / 1e12,
        "features": sum(cost.disk for cost in costs) / 1e12,
        "codes": args.images * FLOAT * numbers / 1e12,
    }
    memory = {
        "labels and order": args.images * KNOWN / 1e9,
        "a stage": max(cost.memory for cost in costs) / 1e9,
    }
    return disk, memory


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=float, default=1e9)
    parser.add_argument("--machines", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--batch", type=int, default=128, help="images a replica and step")
    parser.add_argument(
        "--rate", type=float, help="FLOP/s of a large product in float32; as measured here"
    )
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes/s of a link")
    parser.add_argument("--latency", type=float, default=50e-6, help="seconds of a message")
    parser.add_argument("--disk", type=float, default=1e9, help="bytes/s that a process reads")
    parser.add_argument("--jitter", type=float, default=0.05, help="of the computing time")
    parser.add_argument("--mtbf", type=float, default=10_000, help="hours between failures")
    parser.add_argument("--shared-input", action="store_true", help="each reads its own images")
    parser.add_argument("--recipe", help="of `capsules`")
    args = parser.parse_args(arguments)
    args.images = int(args.images)
    return args


def main():
    args = parse()
    measured = args.rate is None
    args.rate = args.rate or product_rate()
    config = RunConfig(get("capsules"), args.recipe)
    if not measured:
        # What this machine would choose is nothing to another.
        config["autoencoder"].precision = "float32"
    _, parameters = config.family.outline(config, SHAPE)
    print(f"{args.images:,} images of {SHAPE}, {args.batch} a replica and step")
    print(f"{args.rate / 1e9:,.0f} GFLOP/s a replica, {'measured here' if measured else 'given'}")
    print("\n| stage | machines | step, s | computing | adding up | reading | efficiency | hours |")
    print("|---|---|---|---|---|---|---|---|")
    total = dict.fromkeys(args.machines, 0.0)
    for stage in (stage for stage in config.stages if stage.cost):
        for machines in args.machines:
            row = stage_row(stage, config, parameters, args, machines)
            total[machines] += row["hours"]
            shown = " | ".join(f"{row[name]:.3g}" for name in row)
            print(f"| {stage.name} | {machines} | {shown} |")
    print("\nHours in all: " + ", ".join(f"{n} machines {h:,.3g}" for n, h in total.items()))
    for title, found in zip(("TB on disk", "GB in memory"), storage(config, args), strict=True):
        print(f"{title}: " + ", ".join(f"{name} {size:.3g}" for name, size in found.items()))


if __name__ == "__main__":
    main()
