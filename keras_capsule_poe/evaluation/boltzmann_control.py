"""A restricted Boltzmann machine of an autoencoder's features, for samples to be compared with."""

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.data import batches, steps_per_epoch
from keras_capsule_poe.evaluation.feature_model import ROWS, FeatureModel, of_columns
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.functions.hidden_chain import hidden_chain
from keras_capsule_poe.functions.randomness import StatelessSeed, step_seed
from keras_capsule_poe.layers import RestrictedBoltzmannMachine
from keras_capsule_poe.models import HarmoniumModel


class _Machine(HarmoniumModel):
    """Without the figures of a step, which nobody reads here, and which take a product of seven."""

    def _figures(self, machine, x, z):
        return {}

    def _record(self, means, images, update):
        # Keras needs one. What makes up `update` is then in no graph either.
        return {"step": self.optimizer.iterations}


class BoltzmannControl(FeatureModel):
    """A Gaussian-Bernoulli restricted Boltzmann machine fitted to features.

    Given the hidden neurons all features have one variance, `noise` times the mean of their own.
    The machine is centred, and trained by persistent contrastive divergence at a rate that falls
    along a line. A sample is E[v | h] after Gibbs steps from random neurons, of which nothing is
    known of the data. The defaults were chosen on held-out training images, of which
    `benchmarks/research/boltzmann_control.py` prints the table.

    Args:
        neurons: int, E, hidden neurons: with J E of them the machine has as many weights as the
            maps from I x D features to J capsules of E dimensions.
        noise: float, above zero.
        algorithm, chains, steps: See `HarmoniumModel`.
        epochs, batch_size: int.
        learning_rate, momentum: float.
        initial_stddev: float, of the weights, above zero.
        gibbs_steps: int, from random neurons to a sample.
        seed: int, of the training.

    Raises:
        ValueError: If an argument is not as above.

    Examples:

    >>> features = np.random.default_rng(0).normal(size=(20, 3))
    >>> BoltzmannControl(neurons=4, epochs=1).fit(features).sample(5, seed=0).shape
    (5, 3)

    Reference:

    - [Hinton & Salakhutdinov, 2006](https://doi.org/10.1126/science.1127647), Gaussian neurons
    - [Tieleman, 2008](https://doi.org/10.1145/1390156.1390290), persistent chains
    """

    def __init__(
        self,
        neurons,
        noise=16.0,
        algorithm="pcd",
        chains=128,
        steps=1,
        epochs=12,
        batch_size=128,
        learning_rate=0.02,
        momentum=0.5,
        initial_stddev=0.01,
        gibbs_steps=200,
        seed=0,
    ):
        for name, value in (("noise", noise), ("initial_stddev", initial_stddev)):
            if not value > 0:
                raise ValueError(f"`{name}` must be above zero. Received: {name}={value!r}")
        start = keras.initializers.RandomNormal(stddev=initial_stddev, seed=seed)
        machine = RestrictedBoltzmannMachine(
            neurons, "gaussian", learn_variance=False, kernel_initializer=start
        )
        self.model = _Machine(machine, algorithm=algorithm, chains=chains, steps=steps, seed=seed)
        self.noise, self.gibbs_steps = noise, gibbs_steps
        self.epochs, self.batch_size = epochs, batch_size
        self.learning_rate, self.momentum = learning_rate, momentum

    def _fit(self, features):
        features = np.asarray(features, "float32")
        model = self.model
        model.build((None, features.shape[1]))
        self._set_noise(features)
        steps = steps_per_epoch(len(features), self.batch_size)
        rate = keras.optimizers.schedules.PolynomialDecay(
            self.learning_rate, self.epochs * steps, 0.01 * self.learning_rate
        )
        model.compile(keras.optimizers.SGD(rate, momentum=self.momentum), jit_compile=False)
        order = {"batch_size": self.batch_size, "seed": model.seed, "epochs": self.epochs}
        options = {"epochs": self.epochs, "steps_per_epoch": steps, "shuffle": False}
        model.fit(batches(features, **order), **options, verbose=0)

    def _blocks(self, n, seed):
        machine = self.model.machine

        def drawn(seed):
            h = keras.random.uniform((min(ROWS, n), machine.units), seed=StatelessSeed(seed)) < 0.5
            y = ops.cast(h, machine.kernel.dtype) - machine.hidden_offset
            y = hidden_chain(machine.harmonium(), y, self.gibbs_steps, StatelessSeed(seed, 1))
            return machine.decode(y + machine.hidden_offset)

        draw = compiled(drawn)
        for k, start in enumerate(range(0, n, ROWS)):
            yield ops.convert_to_numpy(draw(step_seed(seed, k)))[: n - start]

    def _set_noise(self, features):
        machine = self.model.machine
        variance = max(float(of_columns(lambda some: some.var(axis=0), features).mean()), 1e-12)
        machine.log_variance.assign(np.full(features.shape[1], np.log(self.noise * variance)))
        bias, mean = machine.independent(features)
        machine.visible_bias.assign(bias)
        machine.visible_offset.assign(mean)
