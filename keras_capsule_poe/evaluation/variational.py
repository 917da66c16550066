"""A plain variational autoencoder of features, for samples to be compared with."""

import time

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.data import batches
from keras_capsule_poe.evaluation.feature_model import ROWS, FeatureModel, of_columns

BATCH, RATE = 128, 1e-3
# More than any budget of time allows.
_EPOCHS = 100_000


class VariationalControl(FeatureModel):
    """A variational autoencoder with a Gaussian code, in the place of a model of features.

    Encoder and decoder have one hidden layer, as wide as makes the parameters as many as asked
    for; the noise of the decoder is one variance for all features, at its optimum. Trained by
    Keras' own `fit` with Adam, whose rate falls to zero along a cosine over the budget. Codes are
    drawn from a Gaussian of the mean and covariance of those of the data, not of N(0, 1), which
    short training does not bring them to: that makes the control stronger.

    Args:
        parameters: int, how many it should have.
        seconds: float, the time that training may take; what is built before the first step
            is done does not count.
        steps: int, how many steps it may take.
        code: int, E, dimensions of the code.
        seed: int, of the weights, the order of the images and the noise.

    Attributes:
        about: dict, once it is fitted: `parameters`, `seconds` and `steps`, what it has and took.

    Raises:
        ValueError: If a number is not above zero.

    Examples:

    >>> features = np.random.default_rng(0).normal(size=(64, 6))
    >>> control = VariationalControl(parameters=500, steps=2, code=2).fit(features)
    >>> control.sample(5, seed=0).shape
    (5, 6)

    Reference:

    - [Kingma & Welling, 2014](https://arxiv.org/abs/1312.6114)
    - [Ghosh et al., 2020](https://arxiv.org/abs/1903.12436), a density of codes fitted afterwards
    - [Rybkin et al., 2021](https://arxiv.org/abs/2006.13202), the optimal variance
    """

    def __init__(self, parameters, seconds=60.0, steps=100_000, code=16, seed=0):
        given = {"parameters": parameters, "seconds": seconds, "steps": steps, "code": code}
        for name, value in given.items():
            if not value > 0:
                raise ValueError(f"`{name}` must be above zero. Received: {name}={value!r}")
        self.parameters, self.seconds, self.steps = parameters, seconds, steps
        self.code, self.seed = code, seed
        self.about = None

    def _fit(self, features):
        if features.dtype == np.float64:  # its layers are of 32 bits
            features = features.astype("float32")
        size = features.shape[1]
        self._mean = features.mean(axis=0, dtype="float64").astype("float32")
        self._unit = float(np.sqrt(of_columns(_variance, features).mean())) or 1.0
        hidden = hidden_width(self.parameters, size, self.code)
        model = VariationalAutoencoder(size, hidden, self.code, self.seed)
        model.compile(keras.optimizers.Adam(RATE), jit_compile=False)
        budget = _Budget(self.seconds, self.steps)
        stream = batches(features, batch_size=BATCH, seed=self.seed, epochs=_EPOCHS)
        stream = stream.map(lambda x: (x - self._mean) / self._unit)
        model.fit(stream, shuffle=False, verbose=0, callbacks=[budget])
        self._model = model
        self._codes = self._aggregate(features)
        self.about = {
            "parameters": model.count_params(),
            "seconds": budget.elapsed,
            "steps": budget.done,
        }

    def _blocks(self, n, seed):
        mean, root = self._codes
        z = np.random.default_rng(seed).standard_normal((n, self.code), dtype="float32")
        z = mean + z @ root.T
        for start in range(0, n, ROWS):
            x = np.asarray(self._model.generator(z[start : start + ROWS]))
            yield self._mean + self._unit * x

    def _aggregate(self, features):
        """Mean (E,) and root (E, E) of the covariance of the codes of features."""
        codes, noise = [], []
        for start in range(0, len(features), ROWS):
            x = (features[start : start + ROWS].astype("float32") - self._mean) / self._unit
            found = self._model(x)
            codes.append(np.asarray(found["mean"], "float64"))
            noise.append(np.exp(np.asarray(found["log_variance"], "float64")))
        codes = np.concatenate(codes)
        covariance = np.cov(codes.T).reshape(self.code, self.code)
        covariance += np.diag(np.concatenate(noise).mean(axis=0))
        root = np.linalg.cholesky(covariance)
        return codes.mean(axis=0).astype("float32"), root.astype("float32")


def _variance(columns):
    return columns.var(axis=0, dtype="float64")


def hidden_width(parameters, size, code):
    """Width of the hidden layers that gives so many parameters, at least one.

    Args:
        parameters: int.
        size: int, K, features.
        code: int, E.

    Returns:
        int, H: K H + H + 2 E (H + 1) up, and E H + H + K (H + 1) down.

    Examples:

    >>> hidden_width(3_000_000, 4608, 16)
    323
    """
    return max(1, round((parameters - 2 * code - size) / (2 * size + 3 * code + 2)))


class VariationalAutoencoder(keras.Model):
    """q(z | x) = N(m(x), diag s(x)^2), p(z) = N(0, 1), p(x | z) = N(f(z), v 1).

    Args:
        size: int, K.
        hidden: int, H, width of the hidden layers, ReLU.
        code: int, E.
        seed: int.

    Call arguments:
        x: Tensor (B, K).

    Returns:
        dict: `mean` and `log_variance` (B, E) of q, and `decoded` (B, K), of one z drawn from q.
    """

    def __init__(self, size, hidden, code, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.size = size

        def dense(units, number, activation=None):
            start = keras.initializers.GlorotUniform(seed=4 * seed + number)
            return keras.layers.Dense(units, activation, kernel_initializer=start)

        self.recognition = keras.Sequential(
            [keras.Input((size,)), dense(hidden, 0, "relu"), dense(2 * code, 1)]
        )
        self.generator = keras.Sequential(
            [keras.Input((code,)), dense(hidden, 2, "relu"), dense(size, 3)]
        )
        self.noise = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, x):
        mean, log_variance = ops.split(self.recognition(x), 2, axis=-1)
        noise = keras.random.normal(ops.shape(mean), seed=self.noise)
        z = mean + ops.exp(log_variance / 2) * noise
        return {"mean": mean, "log_variance": log_variance, "decoded": self.generator(z)}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The negative evidence lower bound at the best v, nats a row, up to a constant."""
        divergence = gaussian_divergence(y_pred["mean"], y_pred["log_variance"])
        v = ops.mean(ops.square(x - y_pred["decoded"]))
        # A batch that is met exactly would have a loss without bound.
        return self.size / 2 * ops.log(v + 1e-9) + ops.mean(divergence)


def gaussian_divergence(mean, log_variance):
    """Kullback-Leibler divergence from N(mean, exp(log_variance)) to N(0, 1), nats.

    Args:
        mean, log_variance: Tensors (B, E).

    Returns:
        Tensor (B,).

    Examples:

    >>> gaussian_divergence(np.array([[2.0, 0.0]]), np.zeros((1, 2))).numpy().tolist()
    [2.0]
    """
    return ops.sum(ops.square(mean) + ops.exp(log_variance) - log_variance - 1, axis=-1) / 2


class _Budget(keras.callbacks.Callback):
    """Ends training when its time is up or its steps are done; the rate falls on the way."""

    def __init__(self, seconds, steps):
        super().__init__()
        self.seconds, self.steps = seconds, steps
        self.began, self.elapsed, self.done = None, 0.0, 0

    def on_train_batch_end(self, batch, logs=None):
        # The first step waits for the graph.
        self.began = self.began or time.perf_counter()
        self.done, self.elapsed = self.done + 1, time.perf_counter() - self.began
        spent = min(max(self.elapsed / self.seconds, self.done / self.steps), 1)
        self.model.optimizer.learning_rate = RATE * (1 + np.cos(np.pi * spent)) / 2
        self.model.stop_training = spent == 1
