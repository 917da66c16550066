"""Estimators for scikit-learn: features of a restricted Boltzmann machine and of capsules."""

from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["CapsuleTransformer", "RBMTransformer"]

# Rows per block of sparse input, and of what is computed from many rows.
_BLOCK = 4096
# Probabilities of visible units in the initial biases stay away from 0 and 1.
_LEAST = 0.01


class RBMTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Bernoulli restricted Boltzmann machine, whose hidden units are features.

    It is trained by contrastive divergence with centred units and momentum, in NumPy. The features
    are `p(h = 1 | v)`. Values of the input are probabilities of binary visible units; other values
    than those in [0, 1] are scaled.

    Args:
        n_components: int, number of hidden units.
        learning_rate: float, initial learning rate, which falls linearly to zero.
        momentum: float in [0, 1).
        batch_size: int, rows of a step.
        n_iter: int, passes over the data.
        cd_steps: int, Gibbs steps of contrastive divergence, the k of CD-k.
        persistent: bool, persistent chains (PCD) in place of chains from the data.
        weight_decay: float, L2 penalty of the weights.
        scale: `"auto"` scales the features of data outside [0, 1] by their minimum and maximum in
            `fit`, `"never"` refuses such data.
        random_state: int, `RandomState` or None.

    Attributes:
        components_: Array (n_components, n_features), the weights.
        intercept_hidden_, intercept_visible_: Arrays, biases of the units as they are (without
            centring), so that `p(h = 1 | v) = sigmoid(components_ @ v + intercept_hidden_)`.
        n_iter_: int, passes over the data.
        n_features_in_, feature_names_in_: As usual in scikit-learn.

    Raises:
        ValueError: If a parameter is out of range, or the data are outside [0, 1] with
            `scale="never"`.

    Example: the hidden units of digits, classified. The score is about 0.93.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.pipeline import make_pipeline
    >>> X, y = load_digits(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X / 16, y, random_state=0)
    >>> rbm = RBMTransformer(100, random_state=0)
    >>> pipeline = make_pipeline(rbm, LogisticRegression(C=100, max_iter=1000)).fit(X, y)
    >>> pipeline.score(X_test, y_test) > 0.9
    True

    Reference:

    - [Hinton, 2002](https://doi.org/10.1162/089976602760128018), contrastive divergence
    - [Tieleman, 2008](https://doi.org/10.1145/1390156.1390290), persistent chains
    - [Melchior et al., 2016](https://jmlr.org/papers/v17/14-237.html), centred units
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "cd_steps": [Interval(Integral, 1, None, closed="left")],
        "persistent": ["boolean"],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "scale": [StrOptions({"auto", "never"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int = 256,
        *,
        learning_rate: float = 0.3,
        momentum: float = 0.9,
        batch_size: int = 50,
        n_iter: int = 10,
        cd_steps: int = 1,
        persistent: bool = False,
        weight_decay: float = 1e-4,
        scale: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.cd_steps = cd_steps
        self.persistent = persistent
        self.weight_decay = weight_decay
        self.scale = scale
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "RBMTransformer":
        """Train on rows X (n_samples, n_features), dense or sparse; `y` is ignored."""
        self._validate_params()
        X = self._rows_of(X, reset=True)
        self._start(X)
        steps = self.n_iter * -(-X.shape[0] // self.batch_size)
        for epoch in range(self.n_iter):
            order = self._random.permutation(X.shape[0])
            for k, rows in enumerate(gen_batches(X.shape[0], self.batch_size)):
                done = (epoch * -(-X.shape[0] // self.batch_size) + k) / steps
                self._step(self._dense(X[order[rows]]), self.learning_rate * (1 - done))
        self.n_iter_ = self.n_iter
        return self

    def partial_fit(self, X: Any, y: Any = None) -> "RBMTransformer":
        """Train on rows X in one pass, at the full learning rate, going on from the last call."""
        is_new = not hasattr(self, "components_")
        self._validate_params()
        X = self._rows_of(X, reset=is_new)
        if is_new:
            self._start(X)
            self.n_iter_ = 0
        for rows in gen_batches(X.shape[0], self.batch_size):
            self._step(self._dense(X[rows]), self.learning_rate)
        self.n_iter_ += 1
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return `p(h = 1 | v)` (n_samples, n_components) of rows X."""
        return self._mapped(lambda v: expit(self._up(v)), X)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return minus the free energy (n_samples,) of rows X in nats: log p(v) + log Z.

        scikit-learn's `BernoulliRBM` returns a stochastic approximation of the
        pseudo-log-likelihood instead.
        """
        bias = self.intercept_visible_.astype("float64")

        def log_weight(v):
            hidden = np.logaddexp(0, self._up(v).astype("float64")).sum(axis=1)
            return v.astype("float64") @ bias + hidden

        return self._mapped(log_weight, X)

    def sample(
        self, n_samples: int = 1, *, steps: int = 1000, known: Any = None, random_state: Any = None
    ) -> np.ndarray:
        """Return probabilities (n_samples, n_features) of visible units after Gibbs sampling.

        Args:
            n_samples: int, number of chains, which start from noise.
            steps: int, Gibbs steps.
            known: Array (n_features,) or (n_samples, n_features), NaN where the value is to be
                sampled; other values stay as they are, as in filling in a part of an image. None:
                everything is sampled.
            random_state: int, `RandomState` or None.
        """
        check_is_fitted(self)
        if not isinstance(n_samples, Integral) or n_samples < 1 or steps < 1:
            raise ValueError(
                "`n_samples` and `steps` must be 1 or more. "
                f"Received: n_samples={n_samples!r}, steps={steps!r}"
            )
        random = check_random_state(random_state)
        shape = (n_samples, self.n_features_in_)
        v, fixed = random.uniform(size=shape) < 0.5, None
        if known is not None:
            known = np.asarray(known, "float32")
            if known.ndim not in (1, 2) or known.shape[-1] != shape[1]:
                raise ValueError(
                    f"`known` must have shape ({shape[1]},) or {shape}. "
                    f"Received: shape {known.shape}"
                )
            known = np.broadcast_to(self._scaled(known), shape)
            fixed = ~np.isnan(known)
        for _ in range(steps):
            v = v.astype("float32")
            if fixed is not None:
                v[fixed] = known[fixed]
            h = random.uniform(size=(n_samples, self.n_components)) < expit(self._up(v))
            p = expit(h.astype("float32") @ self.components_ + self.intercept_visible_)
            v = random.uniform(size=shape) < p
        if fixed is not None:
            p[fixed] = known[fixed]
        return p if self._offset is None else p * self._range + self._offset

    def _start(self, X):
        """Set the initial weights from rows X."""
        self._random = check_random_state(self.random_state)
        mean = np.asarray(X.mean(axis=0), "float64").ravel()
        mean = self._scaled(mean[None])[0]
        p = np.clip(mean, _LEAST, 1 - _LEAST)
        shape = (self.n_components, self.n_features_in_)
        weights = 0.05 * self._random.standard_normal(shape) * min(1, 8 / np.sqrt(shape[1]))
        self.components_ = weights.astype("float32")
        self.intercept_visible_ = (np.log(p) - np.log1p(-p)).astype("float32")
        # Centred units keep the gradients of weights and biases apart.
        self._offsets = p.astype("float32"), np.full(self.n_components, 0.5, "float32")
        self.intercept_hidden_ = -self.components_ @ self._offsets[0]
        self.intercept_visible_ -= self._offsets[1] @ self.components_
        self._moments = np.zeros_like(self.components_), 0.0, 0.0
        self._chain = None

    def _step(self, v, learning_rate):
        """Make one step of contrastive divergence on rows v (B, n_features)."""
        mean_v, mean_h = self._offsets
        weights = self.components_
        h = expit(self._up(v))
        state = self._chain if self.persistent and self._chain is not None else self._draw(h)
        for _ in range(self.cd_steps):
            free_v = self._draw(expit(state @ weights + self.intercept_visible_))
            free_h = expit(self._up(free_v))
            state = self._draw(free_h)
        self._chain = state
        pairs = (h - mean_h).T @ (v - mean_v) / len(v)
        pairs -= (free_h - mean_h).T @ (free_v - mean_v) / len(free_v)
        # Gradients of the biases of centred units.
        gradients = (
            pairs - self.weight_decay * weights,
            h.mean(axis=0) - free_h.mean(axis=0),
            v.mean(axis=0) - free_v.mean(axis=0),
        )
        self._moments = tuple(
            self.momentum * moment + gradient for moment, gradient in zip(self._moments, gradients)
        )
        of_weights, of_hidden, of_visible = (learning_rate * moment for moment in self._moments)
        self.components_ += of_weights
        # Biases of the units as they are: those of centred units, less what the offsets add.
        self.intercept_hidden_ += of_hidden - of_weights @ mean_v
        self.intercept_visible_ += of_visible - mean_h @ of_weights

    def _draw(self, p):
        return (self._random.uniform(size=p.shape) < p).astype("float32")

    def _up(self, v):
        return v @ self.components_.T + self.intercept_hidden_

    def _rows_of(self, X, reset):
        """Return validated rows; with `reset` also find how they are scaled."""
        options = {"dtype": ("float64", "float32"), "accept_sparse": "csr"}
        X = validate_data(self, X, reset=reset, **options)
        low, high = X.min(), X.max()
        is_outside = low < 0 or high > 1
        if is_outside and self.scale == "never":
            raise ValueError(
                f"`X` must be in [0, 1] with scale='never'. Received: values from {low:g} to "
                f"{high:g}. Scale them, or use scale='auto'."
            )
        if reset:
            self._offset, self._range = None, None
            if is_outside:
                low, high = (_dense_row(X, name) for name in ("min", "max"))
                self._offset, self._range = low, np.where(high > low, high - low, 1)
        return X

    def _scaled(self, v):
        """Return values of the input as probabilities in [0, 1]."""
        if self._offset is not None:
            v = (v - self._offset) / self._range
        return np.clip(v, 0, 1).astype("float32")

    def _dense(self, rows):
        return self._scaled(rows.toarray() if hasattr(rows, "toarray") else rows)

    def _mapped(self, function, X):
        """Apply a function of dense rows to rows X, block by block."""
        check_is_fitted(self)
        X = self._rows_of(X, reset=False)
        parts = [function(self._dense(X[rows])) for rows in gen_batches(X.shape[0], _BLOCK)]
        return np.concatenate(parts).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self):
        return self.n_components

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _dense_row(X, name):
    """Return the minimum or maximum of each column, dense."""
    found = getattr(X, name)(axis=0)
    return found.toarray()[0] if hasattr(found, "toarray") else found


class CapsuleTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Expert capsules of rows, trained without labels by contrastive divergence.

    The features of a row are centred, scaled and cut into primary capsules. Expert capsules
    (`CapsulePoE`) are then trained as the encoder of a `ProductOfExpertCapsules`, with dynamic
    routing.

    Args:
        n_capsules: int, number of expert capsules J.
        dim: int, dimensions E of each.
        primary_dim: int, consecutive features of one primary capsule. Zeros are appended if it does
            not divide the number of features.
        output: `"capsules"` gives the whole codes (J E features), `"probabilities"` the lengths of
            the capsules (J features).
        routing_iterations: int, counted as Sabour et al. do.
        temperature: float, of the softmax of routing.
        learning_rate: float, initial learning rate.
        batch_size: int, rows of a step.
        n_iter: int, passes over the data. None: enough for 450 steps.
        random_state: int, `RandomState` or None.

    Attributes:
        encoder_: `CapsuleEncoder`, the trained experts.
        primary_: `PrimaryCapsules`, adapted to the data.
        relative_error_: float, the relative squared error of the primary capsules after one Gibbs
            step, on the training rows.
        n_features_in_, feature_names_in_: As usual in scikit-learn.

    Raises:
        ValueError: If a parameter is out of range, or all rows are equal.

    Example: codes of digits, classified. The score is about 0.92.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.pipeline import make_pipeline
    >>> X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
    >>> capsules = CapsuleTransformer(random_state=0)
    >>> pipeline = make_pipeline(capsules, LogisticRegression(C=100, max_iter=1000)).fit(X, y)
    >>> pipeline.score(X_test, y_test) > 0.9
    True

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "n_capsules": [Interval(Integral, 1, None, closed="left")],
        "dim": [Interval(Integral, 1, None, closed="left")],
        "primary_dim": [Interval(Integral, 1, None, closed="left")],
        "output": [StrOptions({"capsules", "probabilities"})],
        "routing_iterations": [Interval(Integral, 1, 100, closed="both")],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "n_iter": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_capsules: int = 10,
        dim: int = 8,
        *,
        primary_dim: int = 4,
        output: str = "capsules",
        routing_iterations: int = 4,
        temperature: float = 1.0,
        learning_rate: float = 0.2,
        batch_size: int = 64,
        n_iter: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_capsules = n_capsules
        self.dim = dim
        self.primary_dim = primary_dim
        self.output = output
        self.routing_iterations = routing_iterations
        self.temperature = temperature
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "CapsuleTransformer":
        """Train on rows X (n_samples, n_features); `y` is ignored."""
        self._validate_params()
        X = validate_data(self, X, dtype=("float64", "float32"), ensure_min_samples=2)
        from keras_capsule_poe.layers.primary_capsules import PrimaryCapsules
        from keras_capsule_poe.models.base.feature_building import optimizer, schedule
        from keras_capsule_poe.models.base.feature_training import MapStart
        from keras_capsule_poe.models.capsule_poe.config import FAMILY
        from keras_capsule_poe.models.capsule_poe.training import build_encoder
        from keras_capsule_poe.training import RunConfig

        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        config = RunConfig(FAMILY, "representation", seed=seed)
        encoder = {
            "capsules": self.n_capsules,
            "dim": self.dim,
            "routing_iterations": self.routing_iterations,
            "temperature": self.temperature,
            "learning_rate": self.learning_rate,
            "batch_size": self.batch_size,
            "epochs": self.n_iter,
            "implementation": "plain",
        }
        config.update({"encoder": encoder, "primary": {"dim": self.primary_dim}})
        # Units of the data do not matter, but float32 has a limited range.
        self._unit = float(np.abs(X).max()) or 1.0
        self.primary_ = PrimaryCapsules(
            self.primary_dim, target_length=config["primary"].target_length
        )
        self.primary_.adapt(self._maps(X))
        x = self._primaries(X)
        self.encoder_ = build_encoder(config, self.primary_.capsules)
        MapStart("clusters", config["encoder"].image_length).apply(
            self.encoder_.experts, lambda rows: x[rows], len(x), seed
        )
        self.encoder_.compile(optimizer(config, "encoder", len(x)), jit_compile=False)
        epochs, _ = schedule(config, "encoder").over(len(x))
        history = self.encoder_.fit(x, batch_size=self.batch_size, epochs=epochs, verbose=0)
        self.relative_error_ = float(history.history["loss"][-1])
        self.n_iter_ = epochs
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the codes of rows X: (n_samples, J E), or lengths (n_samples, J)."""
        codes = self._mapped(self.encoder_or_raise(), X)
        if self.output == "probabilities":
            return np.linalg.norm(codes, axis=-1)
        return codes.reshape(len(codes), -1)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return minus the free energy (n_samples,) of the primary capsules of rows, in nats."""
        return -self._mapped(self.encoder_or_raise().experts.free_energy, X)

    def encoder_or_raise(self) -> Any:
        """Return the encoder; raise `NotFittedError` before `fit`."""
        check_is_fitted(self)
        return self.encoder_

    def _mapped(self, function, X):
        import keras

        X = validate_data(self, X, dtype=("float64", "float32"), reset=False)
        # Without graphs, since the rows are few and each estimator would trace its own.
        x = self._primaries(X)
        parts = [
            keras.ops.convert_to_numpy(function(x[rows])) for rows in gen_batches(len(x), _BLOCK)
        ]
        return np.concatenate(parts).astype(X.dtype, copy=False)

    def _maps(self, X):
        """Return rows as feature maps (N, 1, 1, F), padded to whole primary capsules."""
        extra = -X.shape[1] % self.primary_dim
        X = np.pad(X / self._unit, ((0, 0), (0, extra))).astype("float32")
        return X[:, None, None]

    def _primaries(self, X):
        import keras

        return keras.ops.convert_to_numpy(self.primary_(self._maps(X)))

    @property
    def _n_features_out(self):
        return self.n_capsules * (1 if self.output == "probabilities" else self.dim)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
