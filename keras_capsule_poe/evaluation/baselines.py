"""Generative baselines of features: Gaussians, a mixture, an RBM and an autoencoder."""

import functools
import time

import keras
import numpy as np
from keras import ops
from sklearn.decomposition import PCA

from keras_capsule_poe.core.mcmc import hidden_chain
from keras_capsule_poe.core.numerics import StatelessSeed, compiled, one_of, step_seed
from keras_capsule_poe.data import batches, steps_per_epoch
from keras_capsule_poe.models.base.clusters import fit_mixture
from keras_capsule_poe.models.boltzmann.layers import RestrictedBoltzmannMachine
from keras_capsule_poe.models.boltzmann.model import HarmoniumModel

# Block sizes: rows of samples, and columns for `of_columns`.
ROWS = 1_000
_COLUMNS = 256


class FeatureModel:
    """Generative model of features (N, K). A subclass has `fit`, which returns it, and `blocks`.

    Methods:
        fit: of features (N, K) of any floating point type, N two or more.
        blocks: iterator over the rows of `sample` in blocks of at most `ROWS`.
    """

    def sample(self, n, seed):
        """Return random features (n, K), float32."""
        return np.concatenate(list(self.blocks(n, seed)))


def of_columns(function, features):
    """Apply a column statistic to features (N, K) in blocks, without copying all of them."""
    starts = range(0, features.shape[1], _COLUMNS)
    return np.concatenate([function(features[:, start : start + _COLUMNS]) for start in starts])


class FeatureBaseline(FeatureModel):
    """Diagonal Gaussian, full Gaussian or mixture of Gaussians, fitted to features (N, K)."""

    def __init__(self, kind, rank=200, components=50, seed=0):
        self.kind, self.rank, self.components, self.seed = kind, rank, components, seed

    def fit(self, features):
        self._drawn = KINDS[self.kind](np.asarray(features, "float32"), self)
        return self

    def blocks(self, n, seed):
        random = np.random.default_rng(seed)
        return (self._drawn(random, min(ROWS, n - start)) for start in range(0, n, ROWS))


def _diagonal_gaussian(features, baseline):
    mean = _mean(features)
    deviation = of_columns(lambda some: some.std(axis=0, ddof=1, dtype="float64"), features)
    deviation = deviation.astype("float32")

    def draw(random, n):
        return mean + deviation * random.standard_normal((n, len(mean)), dtype="float32")

    return draw


def _full_gaussian(features, baseline):
    mean = _mean(features)
    # For standard normal e, sum_n e_n (x_n - mean)/sqrt(N - 1) has the covariance of the features.
    # This decomposes no large matrix, and works with fewer rows than dimensions.
    root = features - mean
    root /= np.float32(np.sqrt(len(features) - 1))

    def draw(random, n):
        return mean + random.standard_normal((n, len(root)), dtype="float32") @ root

    return draw


def _gaussian_mixture(features, baseline):
    rank = min(baseline.rank, features.shape[1], len(features) - 1)
    axes = PCA(rank, svd_solver="randomized", random_state=baseline.seed).fit(features)
    # In these units `reg_covar` is relative to the variance of the features.
    unit = np.float32(np.sqrt(axes.explained_variance_.mean()))
    components = min(baseline.components, len(features))
    # A baseline need not be at its optimum, so 30 EM iterations are enough.
    mixture = fit_mixture(
        axes.transform(features) / unit, components, baseline.seed, reg_covar=1e-3, max_iter=30
    )

    def draw(random, n):
        return axes.inverse_transform(unit * mixture.sample(random, n))

    return draw


def _mean(features):
    return features.mean(axis=0, dtype="float64").astype("float32")


KINDS = {
    "diagonal_gaussian": _diagonal_gaussian,
    "full_gaussian": _full_gaussian,
    "gaussian_mixture": _gaussian_mixture,
}


BATCH, RATE = 128, 1e-3
# Never reached, because the budget stops training first.
_EPOCHS = 100_000


class VariationalBaseline(FeatureModel):
    """Variational autoencoder of a given size, trained on features within a budget."""

    def __init__(self, parameters, seconds=60.0, steps=100_000, code=16, seed=0):
        self.parameters, self.seconds, self.steps = parameters, seconds, steps
        self.code, self.seed = code, seed
        self.about = None

    def fit(self, features):
        if features.dtype == np.float64:  # its layers are float32
            features = features.astype("float32")
        size = features.shape[1]
        self._mean = features.mean(axis=0, dtype="float64").astype("float32")
        self._unit = float(np.sqrt(of_columns(_variance, features).mean())) or 1.0
        hidden = hidden_width(self.parameters, size, self.code)
        model = VariationalAutoencoder(size, hidden, self.code, self.seed)
        model.compile(keras.optimizers.Adam(RATE), jit_compile=False)
        budget = Budget(self.seconds, self.steps, RATE)
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
        return self

    def blocks(self, n, seed):
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


class Budget(keras.callbacks.Callback):
    """Stop training when time or steps run out, with a cosine learning rate from `rate`."""

    def __init__(self, seconds, steps, rate):
        super().__init__()
        self.seconds, self.steps, self.rate = seconds, steps, rate
        self.began, self.elapsed, self.done = None, 0.0, 0

    def on_train_batch_end(self, batch, logs=None):
        # The clock starts after the first step, which builds the graph.
        self.began = self.began or time.perf_counter()
        self.done, self.elapsed = self.done + 1, time.perf_counter() - self.began
        spent = min(max(self.elapsed / self.seconds, self.done / self.steps), 1)
        self.model.optimizer.learning_rate = self.rate * (1 + np.cos(np.pi * spent)) / 2
        self.model.stop_training = spent == 1


class _Machine(HarmoniumModel):
    """RBM model without metrics of a training step, which the baseline does not read."""

    def _figures(self, machine, x, z):
        return {}

    def _record(self, means, images, update):
        # Keras needs one metric. Without `update`, its computation leaves the graph.
        return {"step": self.optimizer.iterations}


class BoltzmannBaseline(FeatureModel):
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
        start = keras.initializers.RandomNormal(stddev=initial_stddev, seed=seed)
        machine = RestrictedBoltzmannMachine(
            neurons, "gaussian", learn_variance=False, kernel_initializer=start
        )
        options = {"persistent_chains": chains, "cd_steps": steps, "seed": seed}
        self.model = _Machine(machine, algorithm=algorithm, **options)
        self.noise, self.gibbs_steps = noise, gibbs_steps
        self.epochs, self.batch_size = epochs, batch_size
        self.learning_rate, self.momentum = learning_rate, momentum

    def fit(self, features):
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
        return self

    def blocks(self, n, seed):
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


SETS = ("none", "simple", "trained")
BOLTZMANN, VAE = "boltzmann_machine", "variational_autoencoder"


def baseline_set(baselines, model, seed=0, vae_seconds=0):
    """Return functions by name that make unfitted baselines."""
    one_of("baselines", baselines, SETS)
    if vae_seconds and baselines != "trained":
        raise ValueError(
            "`vae_seconds` goes with baselines='trained'. "
            f"Received: vae_seconds={vae_seconds!r}, baselines={baselines!r}"
        )
    made = {}
    if baselines != "none":
        made |= {kind: functools.partial(FeatureBaseline, kind, seed=seed) for kind in KINDS}
    if baselines == "trained":
        # Trained baselines match the model's code size or number of parameters.
        neurons = model.capsules * model.dim
        made[BOLTZMANN] = functools.partial(BoltzmannBaseline, neurons, seed=seed)
        if vae_seconds:
            own = model.own_parameters
            vae = functools.partial(VariationalBaseline, own, vae_seconds, seed=seed)
            # Cached, so that callers can read `about` of the fitted one.
            made[VAE] = functools.cache(vae)
    return made
