"""Features of a restricted Boltzmann machine for scikit-learn."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.arguments import below_one, real_number, whole_number
from keras_capsule_poe.models.boltzmann import arrays
from keras_capsule_poe.sklearn.base import ROWS, Features, dense
from keras_capsule_poe.training.sanity import off_or_saturated, worse_than_mean


class RBMTransformer(Features):
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

        def float32(rows):
            v = self._unit(rows.toarray()) if sparse.issparse(X) else rows
            return v.astype("float32", copy=False)

        # Weights that overflow are reported below.
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(epochs):
                for rows in np.array_split(self._rng.permutation(X.shape[0]), batches):
                    self._machine.step(float32(X[rows]), rule, self._rng)
            v = float32(X[:ROWS])
            error, probability = self._machine.error_and_probability(v)
        found = worse_than_mean(v, error, np.mean(v, axis=0)) + off_or_saturated(probability)
        self._warn(epochs * batches, found)
        self.components_ = self._machine.kernel.copy()
        self.intercept_hidden_, self.intercept_visible_ = self._machine.uncentred_biases()
        self._n_features_out = len(self.components_)
        return self

    def _set_range(self, X):
        """Set the ranges of the features for `rescale`; otherwise check that they are [0, 1]."""
        self._range, self._trained_range = None, (0.0, 1.0)
        if not self.rescale:
            _check_range(X)
            return
        low, high = (dense(side(axis=0)).ravel() for side in (X.min, X.max))
        # A constant feature becomes zero.
        self._range = low, np.where(high > low, high - low, 1).astype(low.dtype)
        self._trained_range = self._range

    def _unit(self, X):
        """Return dense rows with features in [0, 1] if `rescale` is set; unchanged otherwise."""
        if self._range is None:
            return X
        low, width = self._range
        return np.clip((X - low) / width, 0, 1).astype(X.dtype, copy=False)

    def _smoothed_mean(self, X):
        """Return feature means (D,) with each state of a feature counted once more."""
        parts = gen_batches(X.shape[0], ROWS)
        total = sum(self._unit(dense(X[part])).sum(axis=0, dtype="float64") for part in parts)
        return (total + 1) / (X.shape[0] + 2)

    def transform(self, X: Tensor) -> Tensor:
        """Return the hidden probabilities (N, E) of rows X (N, D), in the dtype of X.

        New rows may leave the range of the training rows. A warning says so if they leave it by
        more than twice its width.
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
