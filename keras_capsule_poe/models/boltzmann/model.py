"""Training of an RBM by CD, persistent CD or parallel tempering."""

import functools
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Seed, Serializable, Tensor
from keras_capsule_poe.core.arguments import not_negative, number_given, seed_given
from keras_capsule_poe.core.divergence import contrastive_divergence
from keras_capsule_poe.core.harmonium import gibbs_chain, gibbs_step
from keras_capsule_poe.core.mcmc import replica_exchange
from keras_capsule_poe.core.numerics import (
    StatelessSeed,
    one_of,
    share,
    streams,
    whole_number,
)
from keras_capsule_poe.core.sharding import draw_rows
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.metrics import mean_error
from keras_capsule_poe.models.base.contrastive import ContrastiveModel
from keras_capsule_poe.models.base.inputs import FINITE, PIXELS, rows_given
from keras_capsule_poe.models.base.protocols import build_once, deserialized
from keras_capsule_poe.models.boltzmann.layers import RestrictedBoltzmannMachine, binarization


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class HarmoniumModel(ContrastiveModel):
    """RBM trained on arrays (N, D) by CD, persistent CD or parallel tempering.

    Persistent chains are non-trainable weights, so checkpoints contain them. All random numbers
    derive from `seed` and the optimizer's step.

    On TensorFlow compile with `jit_compile=False`, because XLA makes a step on a CPU several
    times slower. On JAX keep the default.

    Args:
        machine: `RestrictedBoltzmannMachine`, or its config.
        algorithm: `"cd"` restarts chains at each step. `"pcd"` keeps persistent chains.
            `"pt"` keeps them at several temperatures, with replica exchange.
        cd_steps: int, the k of CD-k.
        persistent_chains: int, number of persistent chains at each temperature.
        chains_initializer: `"data"` or `"noise"`, where chains start. Noise is drawn from the
            RBM with W = 0.
        temperatures: int, number of `"pt"` temperatures, equally spaced in beta.
        binarize: `"stochastic"` draws each neuron with its value as probability at each step;
            `"threshold"` sets values above 0.5 to one; `None` keeps the values.
        weight_decay: float, multiple of W that is subtracted from its gradient.
        offset_rate: float, step size of the centring offsets towards the batch mean.
        seed: int.
        **kwargs: Base model arguments.

    Call arguments:
        inputs: Tensor (B, D), v.

    Returns:
        Tensor (B, E), `p(h = 1 | v)`.

    Raises:
        ValueError: If an argument has a wrong value.
        RuntimeError: If trained on a backend other than TensorFlow or JAX.

    Example:

    >>> model = HarmoniumModel(RestrictedBoltzmannMachine(3), "pcd", persistent_chains=5)
    >>> model.compile(keras.optimizers.SGD(0.05), jit_compile=False)
    >>> v = np.random.default_rng(0).integers(2, size=(8, 4)).astype("float32")
    >>> history = model.fit(v, verbose=0)
    >>> model(v).shape, model.sample(6, steps=10, seed=0).shape
    (TensorShape([8, 3]), TensorShape([6, 4]))

    Reference:

    - [Hinton, 2002](https://doi.org/10.1162/089976602760128018), contrastive divergence
    - [Tieleman, 2008](https://doi.org/10.1145/1390156.1390290), persistent chains
    - [Desjardins et al., 2010](https://proceedings.mlr.press/v9/desjardins10a.html), tempering
    """

    MACHINE: Any = RestrictedBoltzmannMachine
    ALGORITHMS: tuple[str, ...] = ("cd", "pcd", "pt")

    def __init__(
        self,
        machine: Serializable,
        algorithm: str = "cd",
        cd_steps: int = 1,
        persistent_chains: int = 100,
        chains_initializer: str = "data",
        temperatures: int = 10,
        binarize: str | None = None,
        weight_decay: float = 0.0,
        offset_rate: float = 0.01,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(seed=seed, **kwargs)
        machine = deserialized(machine)
        if not isinstance(machine, self.MACHINE):
            raise ValueError(
                f"`machine` must be a {self.MACHINE.__name__} layer. Received: machine={machine!r}"
            )
        self.machine = machine
        self.algorithm = one_of("algorithm", algorithm, self.ALGORITHMS)
        self.cd_steps = whole_number("cd_steps", cd_steps)
        self.persistent_chains = whole_number("persistent_chains", persistent_chains)
        starts = ("data", "noise")
        self.chains_initializer = one_of("chains_initializer", chains_initializer, starts)
        self.temperatures = whole_number("temperatures", temperatures, least=2)
        self.binarize = binarization(binarize, machine)
        self.weight_decay = not_negative("weight_decay", weight_decay)
        self.offset_rate = share("offset_rate", offset_rate, or_zero=True)
        self.free_energy_tracker = keras.metrics.Mean(name="free_energy")
        if self.algorithm == "pt":
            self.exchange_tracker = keras.metrics.Mean(name="exchange_rate")

    def build(self, input_shape):
        build_once(self.machine, input_shape)
        if self.algorithm in ("pcd", "pt"):
            levels = self.temperatures if self.algorithm == "pt" else 1
            options = {"trainable": False, "autocast": False}
            shape = (levels, self.persistent_chains, *input_shape[1:])
            # Uncentred, so that they do not change when the offset moves.
            self.chain_states = self.add_weight(
                shape, "zeros", dtype=self.variable_dtype, name="particles", **options
            )
            self.age = self.add_weight((), "zeros", dtype="int32", name="age", **options)
        self.built = True

    @property
    def bounds(self):
        return FINITE if self.machine.visible == "gaussian" else PIXELS

    def call(self, inputs):
        return self.machine(inputs)

    def compute_output_shape(self, input_shape):
        return self.machine.compute_output_shape(input_shape)

    def adapt(self, data):
        """Set biases and centring offsets from data, see `RestrictedBoltzmannMachine.adapt`."""
        self.machine.adapt(data)

    def free_energy(self, v):
        """Return F(v) (B,) in nats for v (B, D)."""
        return self.machine.free_energy(v)

    def sample(self, n: int, steps: int = 1000, seed: Seed = 0) -> Tensor:
        """Return visible neurons (n, D) after a number of Gibbs steps from noise."""
        n = rows_given(n, math.prod(self.machine.visible_bias.shape), "rows")
        steps = number_given("steps", steps, 0)
        first, second = streams(seed_given(seed), 2)
        machine = self.machine.harmonium()
        x, _ = gibbs_chain(machine, self._noise(machine, (n,), first), steps, second)
        return self.machine.received(x)

    def fantasies(self, n, steps=1000, seed=0):
        """Return visible neurons (n, D), Gibbs steps from the persistent chains, or from noise."""
        if self.algorithm == "cd":
            return self.sample(n, steps, seed)
        rows = ops.arange(n) % self.persistent_chains
        x = self._uncentred(ops.take(self.chain_states[0], rows, axis=0), -1)
        x, _ = gibbs_chain(self.machine.harmonium(), x, steps, seed)
        return self.machine.received(x)

    def train_step(self, data):
        v, _ = self.images_of(data)
        seeds = streams(StatelessSeed(self.seed, self.optimizer.iterations), 5)
        chains, hotter = self._chains(self._binarized(v, seeds[0]), seeds[1:4])
        means_of = functools.partial(self._means, seeds, chains)
        means, same = self.over_replicas(means_of)(v)
        if self.algorithm != "cd":
            states = ops.concatenate([same["chains"][None], hotter])
            self.chain_states.assign(self._uncentred(states))
            self.age.assign_add(1)
        return self.update_weights(means, ops.shape(v)[0])

    def test_step(self, data):
        v, _ = self.images_of(data)
        v = self._binarized(v, StatelessSeed(self.seed))
        machine, x = self.machine.harmonium_of(v), self.machine.sent(v)
        return self._record(
            self._error_and_energy(machine, x, machine.fields(x)), ops.shape(v)[0], None
        )

    def _chains(self, v, seeds):
        """Return centred initial states, or None for the data, and those of hotter chains."""
        if self.algorithm == "cd" and self.chains_initializer == "data":
            return None, None
        machine, x = self.machine.harmonium(), self.machine.sent(v)
        if self.algorithm == "cd":
            return self._noise(machine, ops.shape(x)[:1], seeds[0]), None
        levels = self.chain_states.shape[0]
        if self.chains_initializer == "noise":
            first = self._noise(machine, (levels, self.persistent_chains), seeds[0])
        else:
            rows = ops.arange(levels * self.persistent_chains) % ops.shape(x)[0]
            first = ops.reshape(ops.take(x, rows, axis=0), self.chain_states.shape)
        chains = ops.where(self.age > 0, self._uncentred(self.chain_states, -1), first)
        if self.algorithm == "pcd":
            return chains[0], chains[1:]
        return self._tempered(machine, chains, seeds[1:])

    def _tempered(self, machine, chains, seeds):
        """Step the hotter chains, exchange replicas, and return the chains at beta 1 and below."""
        levels = self.temperatures
        betas = ops.cast(np.linspace(1, 0, levels), chains.dtype)
        # Two levels have only the even pair (0, 1).
        odd = self.age % (1 if levels == 2 else 2)
        hot = machine.tempered(betas[1:, None, None])
        hotter, _ = gibbs_chain(hot, chains[1:], self.cd_steps, seeds[0])
        chains, has_moved = replica_exchange(
            lambda x, b: machine.tempered(b[..., None]).free_energy(x),
            ops.concatenate([chains[:1], hotter]),
            betas,
            seeds[1],
            odd=odd,
        )
        paired = ops.cast((levels - odd) // 2 * 2 * self.persistent_chains, chains.dtype)
        self.exchange_tracker.update_state(ops.sum(ops.cast(has_moved, chains.dtype)) / paired)
        return chains[0], chains[1:]

    def _noise(self, machine, shape, seed):
        """Draw centred visible neurons of the RBM without maps."""
        bias = machine.visible_bias
        return machine.visible.sample(ops.broadcast_to(bias, (*shape, *bias.shape)), seed)

    def _uncentred(self, x, sign=1):
        offset = self.machine.visible_offset
        return x if offset is None else x + sign * offset

    def _binarized(self, v, seed):
        v = ops.cast(v, self.variable_dtype)
        if self.binarize is None:
            return v
        bar = 0.5
        if self.binarize == "stochastic":
            bar = draw_rows(keras.random.uniform, tuple(ops.shape(v)), dtype=v.dtype, seed=seed)
        return ops.cast(v > bar, v.dtype)

    def _means(self, seeds, chains, v, share=1.0):
        """Return the means over images that an update needs, and the chains not tied to images."""
        rbm, v = self.machine, self._binarized(v, seeds[0])
        machine, x = rbm.harmonium_of(v), rbm.sent(v)
        sides = rbm.sides_of(machine, rbm.routing == "latent")
        divergence = contrastive_divergence(
            x=x, cd_steps=self.cd_steps, seed=seeds[4], chains=chains, **sides
        )
        y = machine.hidden.mean(divergence.z)
        means = self._error_and_energy(machine, x, divergence.z)
        means["ascents"] = [
            divergence.gradient - self.weight_decay * rbm.kernel,
            divergence.hidden_bias,
            divergence.visible_bias,
        ]
        if self._learns_variance:
            means["ascents"].append(rbm.log_variance_gradient(v))
        if rbm.centering:
            means["sides"] = ops.mean(x, axis=0), ops.mean(y, axis=0)
        means |= self.statistics(machine, y)
        return means, {} if self.algorithm == "cd" else {"chains": divergence.reconstruction}

    def statistics(self, machine, y):
        """Return a dict of further means over images of the hidden states y; for subclasses."""
        return {}

    def update_weights(self, means, images):
        """Apply the means of `train_step` to the weights and return the metrics."""
        update = self.apply_ascent(zip(self._learned, means["ascents"]))
        # Moving the offsets also changes the biases, so frozen biases freeze the offsets.
        rbm = self.machine
        # With latent parents a new centre would change the energy.
        is_movable = rbm.centering and rbm.routing != "latent"
        if is_movable and self.trains(rbm.hidden_bias, rbm.visible_bias):
            moves = (self.offset_rate * side for side in means["sides"])
            rbm.move_offsets(*moves, means.get("coefficients"))
        return self._record(means, images, update)

    @property
    def _learned(self):
        rbm = self.machine
        learned = [rbm.kernel, rbm.hidden_bias, rbm.visible_bias]
        return [*learned, rbm.log_variance] if self._learns_variance else learned

    @property
    def _learns_variance(self):
        return self.machine.visible == "gaussian" and self.machine.learn_variance

    def _error_and_energy(self, machine, x, z):
        """Return means of the mean-field reconstruction error and of the free energy."""
        reconstruction, _ = gibbs_step(machine, x, seed=None, fields=z)
        error = mean_error(self._uncentred(reconstruction), self._uncentred(x))
        energy = self.machine.free_energy_of(machine, x, z)
        return {"error": error, "free_energy": ops.mean(energy)}

    def _record(self, means, images, update):
        self.track(means["error"], update, images)
        self.free_energy_tracker.update_state(means["free_energy"], images)
        return self.results(update)
