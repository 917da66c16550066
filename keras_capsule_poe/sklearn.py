"""Estimators for scikit-learn: features of an RBM and of a product of expert capsules.

They have scikit-learn's interface, so they work in pipelines, searches and pickles.
"""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.arguments import below_one, one_of, real_number, whole_number
from keras_capsule_poe.models.boltzmann import arrays

__all__ = ["CapsuleTransformer", "RBMTransformer"]

# Rows at a time after training: a sparse matrix becomes dense in parts of this size.
ROWS = 1024
CAPSULE_ROWS = 256
# Largest part of the training rows that is prepared at a time.
BLOCK_BYTES = 32e6
OUTPUTS = ("capsules", "probabilities")


class _Features(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of both estimators: validation of X, dense and sparse, and rows in parts."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validated(self, X, reset=False, **options):
        options |= {"dtype": (np.float64, np.float32), "order": "C", "reset": reset}
        return validate_data(self, X, accept_sparse="csr", **options)

    def _in_parts(self, function, X, rows, shape=()):
        """Return `function` of dense parts of X, joined to an array (N, *shape)."""
        X = self._validated(X)
        result = np.empty((X.shape[0], *shape), X.dtype)
        for part in gen_batches(X.shape[0], rows):
            result[part] = function(_dense(X[part]))
        return result

    def _generator(self):
        """Return a NumPy generator that `random_state` determines."""
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        return np.random.Generator(np.random.SFC64(seed))


def _dense(rows):
    return rows.toarray() if sparse.issparse(rows) else rows


class RBMTransformer(_Features):
    """Bernoulli restricted Boltzmann machine (RBM) for scikit-learn, trained by CD.

    `transform` returns the hidden probabilities p(h = 1 | v). The machine is centred, and its
    visible biases start at the log-odds of the feature means. Training runs in NumPy, and
    `to_model` returns the same machine for Keras.

    Args:
        n_components: int, E, number of hidden units.
        learning_rate: float.
        momentum: float in [0, 1).
        batch_size: int, largest number of rows in a step.
        n_iter: int, number of epochs.
        cd_steps: int, the k of CD-k.
        binarize: bool, draw each feature as 0 or 1 with its value as probability, anew in each
            step. Otherwise steps use the values themselves.
        rescale: bool, rescale each feature to [0, 1] by its training minimum and maximum, and
            clip new values. Otherwise training values outside [0, 1] are an error.
        warm_start: bool, continue in `fit` from the weights of the last `fit`.
        random_state: int, `numpy.random.RandomState` or None.

    Attributes:
        components_: Array (E, D), weights W.
        intercept_hidden_: Array (E,), hidden biases of the machine without centring.
        intercept_visible_: Array (D,), visible biases of the machine without centring.
        n_features_in_: int, D.
        feature_names_in_: Array (D,) of str, if X has column names.

    Raises:
        ValueError: If an argument is invalid, or training values lie outside [0, 1].

    Example:

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from keras_capsule_poe.sklearn import RBMTransformer
    >>> X = np.random.default_rng(0).integers(2, size=(50, 6)).astype(float)
    >>> model = make_pipeline(RBMTransformer(4, random_state=0), LogisticRegression())
    >>> model.fit(X, X[:, 0]).predict(X).shape
    (50,)

    Reference:

    - [Hinton, 2012](https://doi.org/10.1007/978-3-642-35289-8_32), practical guide
    - [Melchior et al., 2016](https://jmlr.org/papers/v17/14-237.html), centring
    """

    def __init__(
        self,
        n_components: int = 100,
        *,
        learning_rate: float = 1.0,
        momentum: float = 0.5,
        batch_size: int = 50,
        n_iter: int = 10,
        cd_steps: int = 1,
        binarize: bool = True,
        rescale: bool = False,
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.cd_steps = cd_steps
        self.binarize = binarize
        self.rescale = rescale
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: Tensor, y: Any = None) -> "RBMTransformer":
        """Train on rows X (N, D) in [0, 1], an array or a sparse matrix; y is ignored."""
        epochs = whole_number("n_iter", self.n_iter)
        is_new = not (self.warm_start and hasattr(self, "components_"))
        return self._train(X, epochs, is_new)

    def partial_fit(self, X: Tensor, y: Any = None) -> "RBMTransformer":
        """Train for one epoch on rows X (N, D); y is ignored.

        The first call sets the initial biases, and with `rescale` the range of each feature. So
        `n_iter` calls with the same X are equal to `fit`.
        """
        return self._train(X, 1, not hasattr(self, "components_"))

    def _train(self, X, epochs, is_new):
        rule = arrays.Rule(
            real_number("learning_rate", self.learning_rate, above=0),
            below_one("momentum", self.momentum),
            whole_number("cd_steps", self.cd_steps),
            bool(self.binarize),
        )
        units = whole_number("n_components", self.n_components)
        batch_size = whole_number("batch_size", self.batch_size)
        X = self._validated(X, reset=is_new)
        if is_new:
            self._set_range(X)
            self._rng = self._generator()
            self._machine = arrays.ArrayMachine(units, self._smoothed_mean(X), self._rng)
        elif units != len(self.components_):
            raise ValueError(
                f"`n_components` must stay {len(self.components_)} when training goes on. "
                f"Received: n_components={units}. Call fit with warm_start=False."
            )
        elif self._range is None:
            _check_range(X)
        batches = -(-X.shape[0] // batch_size)
        # Batches of a dense X are cast to float32 once and not in each epoch.
        X = X if sparse.issparse(X) else self._unit(X).astype("float32", copy=False)
        for _ in range(epochs):
            for rows in np.array_split(self._rng.permutation(X.shape[0]), batches):
                v = self._unit(X[rows].toarray()) if sparse.issparse(X) else X[rows]
                self._machine.step(v.astype("float32", copy=False), rule, self._rng)
        self.components_ = self._machine.kernel.copy()
        self.intercept_hidden_, self.intercept_visible_ = self._machine.uncentred_biases()
        self._n_features_out = len(self.components_)
        return self

    def _set_range(self, X):
        """Set the ranges of the features for `rescale`; otherwise check that they are [0, 1]."""
        self._range = None
        if not self.rescale:
            _check_range(X)
            return
        low, high = (_dense(side(axis=0)).ravel() for side in (X.min, X.max))
        # A constant feature becomes zero.
        self._range = low, np.where(high > low, high - low, 1).astype(low.dtype)

    def _unit(self, X):
        """Return dense rows with features in [0, 1] if `rescale` is set; unchanged otherwise."""
        if self._range is None:
            return X
        low, width = self._range
        return np.clip((X - low) / width, 0, 1).astype(X.dtype, copy=False)

    def _smoothed_mean(self, X):
        """Return feature means (D,) with each state of a feature counted once more."""
        parts = gen_batches(X.shape[0], ROWS)
        total = sum(self._unit(_dense(X[part])).sum(axis=0, dtype="float64") for part in parts)
        return (total + 1) / (X.shape[0] + 2)

    def transform(self, X: Tensor) -> Tensor:
        """Return the hidden probabilities (N, E) of rows X (N, D), in the dtype of X.

        Values outside [0, 1] are allowed here, as new data may leave the range of training data.
        """
        check_is_fitted(self)

        def hidden(v):
            return arrays.hidden_means(self._unit(v), self.components_, self.intercept_hidden_)

        return self._in_parts(hidden, X, ROWS, (self._n_features_out,))

    def score_samples(self, X: Tensor) -> Tensor:
        """Return minus the free energy (N,) of rows X (N, D), in nats.

        This is log p(v) + log Z. It ranks rows by their probability under one machine. The
        unknown log Z differs between machines. scikit-learn's `BernoulliRBM` instead returns a
        random estimate of the pseudo-log-likelihood.
        """
        check_is_fitted(self)
        biases = self.intercept_hidden_, self.intercept_visible_

        def scores(v):
            return -arrays.free_energies(self._unit(v), self.components_, *biases)

        return self._in_parts(scores, X, ROWS)

    def sample(
        self, n_samples: int = 1, *, gibbs_steps: int = 1000, known: Tensor | None = None
    ) -> Tensor:
        """Return rows (n_samples, D) from Gibbs chains that start at the feature means.

        Args:
            n_samples: int, number of chains.
            gibbs_steps: int, Gibbs steps of each chain.
            known: Array (D,) or (n_samples, D), values of known features and NaN for the others.
                The chains keep the known values. None: no feature is known.

        Raises:
            ValueError: If an argument is invalid or `known` has another shape.

        Example:

        >>> machine = RBMTransformer(2, random_state=0).fit(np.eye(3))
        >>> machine.sample(5, gibbs_steps=10, known=[1, np.nan, np.nan])[:, 0].tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
        """
        check_is_fitted(self)
        shape = whole_number("n_samples", n_samples), self.n_features_in_
        if known is not None:
            known = np.asarray(known, "float64")
            if known.shape not in (shape, shape[1:]):
                raise ValueError(
                    f"`known` must have shape {shape[1:]} or {shape}. Received: shape {known.shape}"
                )
            known = np.broadcast_to(self._unit(known), shape)
        rng = self._generator()
        start = rng.random(shape) < self._machine.visible_offset
        steps = whole_number("gibbs_steps", gibbs_steps)
        v = self._machine.sample(start, steps, rng, known).astype("float64")
        return v if self._range is None else self._range[0] + v * self._range[1]

    def to_model(self, **options: Any) -> Any:
        """Return a `HarmoniumModel` of this machine; `options` are its arguments."""
        check_is_fitted(self)
        return self._machine.to_model(**options)


def _check_range(X):
    low, high = X.min(), X.max()
    if low < 0 or high > 1:
        raise ValueError(
            f"`X` must have values in [0, 1]. Received: values from {low:g} to {high:g}. Rescale X "
            "with MinMaxScaler, or set rescale=True."
        )


class CapsuleTransformer(_Features):
    """Product of expert capsules for scikit-learn, trained without labels by CD.

    Each row is centred, scaled by one number and split into primary capsules of `primary_dim`
    consecutive features. Zeros fill the last capsule. `CapsulePoE` experts encode the primary
    capsules. Scale features of different units to equal variance first.

    Args:
        n_capsules: int, J, number of expert capsules.
        capsule_dim: int, E, dimension of an expert capsule.
        primary_dim: int, D, number of features in a primary capsule.
        output: `"capsules"` to return whole capsules (N, J E), `"probabilities"` to return their
            lengths (N, J).
        routing_iterations: int, routing iterations as Sabour et al. count them. With one, the
            coupling coefficients are uniform.
        learning_rate: float, at the start. It falls linearly to a tenth.
        momentum: float in [0, 1).
        weight_decay: float, multiple of the weights that is subtracted from their gradient.
        batch_size: int, largest number of rows in a step.
        n_iter: int, number of epochs.
        target_length: float, root mean square length of a primary capsule before the squash.
        random_state: int, `numpy.random.RandomState` or None.

    Attributes:
        maps_: Array (I, J, E, D), the maps from I primary capsules to J experts.
        mean_: Array (n_features,), feature means.
        scale_: float, factor on the centred features.
        reconstruction_error_: float, relative error of reconstructed primary capsules in the last
            epoch. Zeros have the error one.
        n_features_in_: int, number of features.
        feature_names_in_: Array (n_features,) of str, if X has column names.

    Raises:
        ValueError: If an argument is invalid, or all training rows are equal.

    Example:

    >>> from keras_capsule_poe.sklearn import CapsuleTransformer
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> capsules = CapsuleTransformer(3, 2, n_iter=1, random_state=0).fit(X)
    >>> capsules.transform(X).shape, capsules.score_samples(X).shape
    ((20, 6), (20,))

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
    """

    def __init__(
        self,
        n_capsules: int = 32,
        capsule_dim: int = 4,
        *,
        primary_dim: int = 8,
        output: str = "capsules",
        routing_iterations: int = 2,
        learning_rate: float = 0.2,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        batch_size: int = 32,
        n_iter: int = 10,
        target_length: float = 0.5,
        random_state: Any = None,
    ) -> None:
        self.n_capsules = n_capsules
        self.capsule_dim = capsule_dim
        self.primary_dim = primary_dim
        self.output = output
        self.routing_iterations = routing_iterations
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.target_length = target_length
        self.random_state = random_state

    def fit(self, X: Tensor, y: Any = None) -> "CapsuleTransformer":
        """Train on rows X (N, n_features), an array or a sparse matrix; y is ignored."""
        one_of("output", self.output, OUTPUTS)
        X = self._validated(X, reset=True, ensure_min_samples=2)
        dim = whole_number("primary_dim", self.primary_dim)
        self._primary_shape = -(-X.shape[1] // dim), dim
        self._set_scale(X)
        rng = self._generator()
        model = self._start(X, rng)
        self._train(model, X, rng)
        self.maps_ = np.array(model.experts.kernel)
        self.reconstruction_error_ = float(model.loss_tracker.result())
        return self

    def _set_scale(self, X):
        """Set the mean and the scale as `PrimaryCapsules.adapt` does."""
        length = real_number("target_length", self.target_length, above=0)
        count, total, square = X.shape[0], 0.0, 0.0
        for part in gen_batches(count, ROWS):
            rows = _dense(X[part]).astype("float64")
            total, square = total + rows.sum(axis=0), square + np.square(rows).sum(axis=0)
        self.mean_ = total / count
        energy = square.sum() / count
        spread = energy - np.square(self.mean_).sum()
        # A smaller spread is a rounding error.
        if not spread > 1e-12 * energy:
            raise ValueError(
                f"`X` must have rows that differ. Received: {count} equal rows, n_samples={count}"
            )
        self.scale_ = float(length / np.sqrt(spread / self._primary_shape[0]))

    def _primary(self, rows, dtype="float32"):
        """Return squashed primary capsules (N, I, D) of rows (N, n_features)."""
        from keras_capsule_poe.core.numerics import squash

        inputs, dim = self._primary_shape
        z = np.zeros((len(rows), inputs * dim), dtype)
        z[:, : rows.shape[1]] = self.scale_ * (rows - self.mean_)
        return np.asarray(squash(z.reshape(-1, inputs, dim)))

    def _start(self, X, rng):
        """Return a compiled encoder whose maps are random rows of X."""
        import keras

        from keras_capsule_poe.models.base.clusters import initialize_maps

        model = self._encoder("float32")
        seed = int(rng.integers(2**31 - 1))

        def x_of(rows):
            return self._primary(_dense(X[rows]))

        initialize_maps(model.experts, "random", x_of, X.shape[0], seed)
        rate = real_number("learning_rate", self.learning_rate, above=0)
        batches, _ = self._batches(X)
        steps = batches * whole_number("n_iter", self.n_iter)
        falling = keras.optimizers.schedules.PolynomialDecay(rate, steps, rate / 10)
        sgd = keras.optimizers.SGD(falling, momentum=below_one("momentum", self.momentum))
        model.compile(sgd, jit_compile=False)
        return model

    def _encoder(self, dtype):
        """Return a built `CapsuleEncoder`."""
        from keras_capsule_poe.models.capsule_poe.encoder import CapsuleEncoder, initial_maps
        from keras_capsule_poe.models.capsule_poe.layers import CapsulePoE

        if real_number("weight_decay", self.weight_decay) < 0:
            raise ValueError(
                f"`weight_decay` must be zero or more. Received: weight_decay={self.weight_decay!r}"
            )
        experts = CapsulePoE(
            whole_number("n_capsules", self.n_capsules),
            whole_number("capsule_dim", self.capsule_dim),
            routing_iterations=whole_number("routing_iterations", self.routing_iterations),
            coefficient_sum="mean",
            implementation="reference",
            **initial_maps(self.weight_decay, seed=0),
            dtype=dtype,
        )
        model = CapsuleEncoder(experts, dtype=dtype)
        model.build((None, *self._primary_shape))
        return model

    def _batches(self, X):
        """Return the number of batches in an epoch and the number of rows in a batch."""
        batches = -(-X.shape[0] // whole_number("batch_size", self.batch_size))
        return batches, -(-X.shape[0] // batches)

    def _train(self, model, X, rng):
        from keras_capsule_poe.models.base.contrastive import compiled_steps

        batches, rows = self._batches(X)
        shape = rows, *self._primary_shape
        train = compiled_steps(model, shape)
        at_once = max(1, int(BLOCK_BYTES / (4 * np.prod(shape))))
        for _ in range(self.n_iter):
            model.reset_metrics()
            # The last batch is filled up with rows of the first.
            order = np.resize(rng.permutation(X.shape[0]), (batches, rows))
            for block in gen_batches(batches, at_once):
                x = self._primary(_dense(X[order[block].ravel()]))
                train(x.reshape(-1, *shape))

    @property
    def _n_features_out(self):
        _, capsules, dim, _ = self.maps_.shape
        return capsules if self.output == "probabilities" else capsules * dim

    def transform(self, X: Tensor) -> Tensor:
        """Return capsules (N, J E) or probabilities (N, J) of rows X, in the dtype of X."""
        check_is_fitted(self)
        is_length = one_of("output", self.output, OUTPUTS) == "probabilities"

        def encoded(experts, x):
            codes = np.asarray(experts(x))
            return np.linalg.norm(codes, axis=-1) if is_length else codes.reshape(len(x), -1)

        return self._of_experts(encoded, X, (self._n_features_out,))

    def score_samples(self, X: Tensor) -> Tensor:
        """Return minus the free energy (N,) of rows X, in nats.

        This is the log-probability density of the primary capsules without its constant. It
        ranks rows under one model, and is not comparable between models.
        """
        check_is_fitted(self)
        return self._of_experts(lambda experts, x: -np.asarray(experts.free_energy(x)), X)

    def _of_experts(self, function, X, shape=()):
        """Return `function(experts, x)` of the primary capsules x of all rows X."""
        import keras

        # In float64 a row has the same capsules in any batch. JAX has no float64 by default.
        dtype = "float32" if keras.backend.backend() == "jax" else "float64"
        experts = self._trained(dtype).experts

        def of_rows(rows):
            return function(experts, self._primary(rows, dtype))

        return self._in_parts(of_rows, X, CAPSULE_ROWS, shape)

    def _trained(self, dtype):
        """Return the encoder with the learned maps."""
        model = self._encoder(dtype)
        model.experts.kernel.assign(self.maps_)
        return model

    def to_model(self) -> Any:
        """Return the `CapsuleEncoder` of primary capsules (N, I, D)."""
        check_is_fitted(self)
        return self._trained("float32")
