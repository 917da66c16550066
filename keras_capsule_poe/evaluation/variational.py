"""A plain variational autoencoder of features, as a trained baseline."""

import time

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.data import batches
from keras_capsule_poe.evaluation.feature_model import ROWS, FeatureModel, of_columns

BATCH, RATE = 128, 1e-3
# Never reached, because the budget stops training first.
_EPOCHS = 100_000


class VariationalControl(FeatureModel):
    """Variational autoencoder of a given size, trained on features within a budget."""

    def __init__(self, parameters, seconds=60.0, steps=100_000, code=16, seed=0):
        given = {"parameters": parameters, "seconds": seconds, "steps": steps, "code": code}
        for name, value in given.items():
            if not value > 0:
                raise ValueError(f"`{name}` must be above zero. Received: {name}={value!r}")
        self.parameters, self.seconds, self.steps = parameters, seconds, steps
        self.code, self.seed = code, seed
        self.about = None

    def _fit(self, features):
        if features.dtype == np.float64:  # its layers are float32
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
        # Short training does not bring the codes to N(0, 1), so draw from their own Gaussian.
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
        """Return mean (E,) and covariance root (E, E) of the codes of features."""
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
    """Return the hidden width, at least one, that gives about `parameters` parameters."""
    # K H + H + 2 E (H + 1) in the encoder, E H + H + K (H + 1) in the decoder.
    return max(1, round((parameters - 2 * code - size) / (2 * size + 3 * code + 2)))


class VariationalAutoencoder(keras.Model):
    """VAE with q(z|x) = N(m(x), diag s(x)^2), p(z) = N(0, 1) and p(x|z) = N(f(z), v 1)."""

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
        """Return the negative ELBO at the optimal v, in nats per row, up to a constant."""
        divergence = gaussian_divergence(y_pred["mean"], y_pred["log_variance"])
        v = ops.mean(ops.square(x - y_pred["decoded"]))
        # Without 1e-9, the loss of an exactly reconstructed batch would be unbounded.
        return self.size / 2 * ops.log(v + 1e-9) + ops.mean(divergence)


def gaussian_divergence(mean, log_variance):
    """Return KL(N(mean, exp(log_variance)) || N(0, 1)) of each row (B,), in nats."""
    return ops.sum(ops.square(mean) + ops.exp(log_variance) - log_variance - 1, axis=-1) / 2


class _Budget(keras.callbacks.Callback):
    """Stop training when time or steps run out, with a cosine learning rate."""

    def __init__(self, seconds, steps):
        super().__init__()
        self.seconds, self.steps = seconds, steps
        self.began, self.elapsed, self.done = None, 0.0, 0

    def on_train_batch_end(self, batch, logs=None):
        # The clock starts after the first step, which builds the graph.
        self.began = self.began or time.perf_counter()
        self.done, self.elapsed = self.done + 1, time.perf_counter() - self.began
        spent = min(max(self.elapsed / self.seconds, self.done / self.steps), 1)
        self.model.optimizer.learning_rate = RATE * (1 + np.cos(np.pi * spent)) / 2
        self.model.stop_training = spent == 1
