"""A restricted Boltzmann machine as a trained baseline, fitted to an autoencoder's features."""

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
    """RBM model without metrics of a training step, which the baseline does not read."""

    def _figures(self, machine, x, z):
        return {}

    def _record(self, means, images, update):
        # Keras needs one metric. Without `update`, its computation leaves the graph.
        return {"step": self.optimizer.iterations}


class BoltzmannControl(FeatureModel):
    """Gaussian-Bernoulli RBM of features, with one fixed conditional variance."""

    # `benchmarks/research/boltzmann_control.py` chose the defaults on held-out training images.
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
        # Given the hidden neurons, each feature has `noise` times the mean feature variance.
        variance = max(float(of_columns(lambda some: some.var(axis=0), features).mean()), 1e-12)
        machine.log_variance.assign(np.full(features.shape[1], np.log(self.noise * variance)))
        bias, mean = machine.independent(features)
        machine.visible_bias.assign(bias)
        machine.visible_offset.assign(mean)
