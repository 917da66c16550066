"""Base of the estimators: validation of X, rows in parts, and the range of the training rows."""

import warnings

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.arguments import below_one, real_number, whole_number
from keras_capsule_poe.errors import TrainingWarning
from keras_capsule_poe.training.sanity import worse_than_mean

# Rows at a time after training: a sparse matrix becomes dense in parts of this size.
ROWS = 1024
# Largest part of the training rows that is prepared at a time.
BLOCK_BYTES = 32e6
# Fewer training steps are not meant to learn much.
FEW_STEPS = 20
# Values further from the range of the training rows than so many of its widths are far outside.
FAR = 2.0


class Features(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of all estimators: validation of X, dense and sparse, and rows in parts."""

    # Smallest value and width of each feature in training, (D,) or scalars.
    _trained_range = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def score_samples(self, X: Tensor) -> Tensor:
        """Return minus the free energy (N,) of rows X, in nats."""
        raise NotImplementedError

    def score(self, X: Tensor, y: object = None) -> float:
        """Return the mean of `score_samples` over rows X, in nats; y is ignored.

        Searches use it where there are no labels. The unknown log Z differs between models, so it
        compares data under one model better than models of different sizes.
        """
        return float(np.mean(self.score_samples(X), dtype="float64"))

    def _validated(self, X, reset=False, **options):
        options |= {"dtype": (np.float64, np.float32), "order": "C", "reset": reset}
        return validate_data(self, X, accept_sparse="csr", **options)

    def _in_parts(self, function, X, rows, shape=()):
        """Return `function` of dense parts of X, joined to an array (N, *shape)."""
        X = self._validated(X)
        result, far = np.empty((X.shape[0], *shape), X.dtype), Far(self._trained_range)
        for part in gen_batches(X.shape[0], rows):
            v = dense(X[part])
            far.count(v)
            result[part] = function(v)
        far.warn(X.shape[0])
        return result

    def _warn(self, steps, found):
        """Warn of what `training.sanity` has found after so many steps of training."""
        for text in found if steps >= FEW_STEPS else ():
            warnings.warn(
                f"{type(self).__name__}: {text}. Train longer, or with a lower `learning_rate`.",
                TrainingWarning,
                stacklevel=3,
            )

    def _generator(self):
        """Return a NumPy generator that `random_state` determines."""
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        return np.random.Generator(np.random.SFC64(seed))


class TrainedByKeras(Features):
    """Base of estimators whose model Keras trains on centred rows, scaled by one number.

    `_weights` holds the learned weights of one layer of the model.
    """

    # Rows at a time after training, and the attribute of the model that is the layer.
    ROWS, LAYER = ROWS, ""

    def _model(self, dtype="float32"):
        """Return the built model, not trained."""
        raise NotImplementedError

    def _trained(self, dtype="float32"):
        """Return the model with the learned weights, and its layer."""
        check_is_fitted(self)
        model = self._model(dtype)
        layer = getattr(model, self.LAYER)
        layer.set_weights(self._weights)
        return model, layer

    def _of_layer(self, function, X, shape=()):
        """Return `function(layer, inputs)` of all rows X, an array (N, *shape)."""
        dtype = precise()
        _, layer = self._trained(dtype)

        def of_rows(rows):
            return function(layer, self._inputs(rows, dtype))

        return self._in_parts(of_rows, X, self.ROWS, shape)

    def _inputs(self, rows, dtype="float32"):
        """Return the inputs of the model for dense rows (N, n_features)."""
        raise NotImplementedError

    def _inputs_of(self, X, rows):
        """Return the inputs of the model for rows of X, by their numbers or a slice."""
        return self._inputs(dense(X[rows]))

    def _set_scale(self, X, length, parts):
        """Set the range, the mean, and the scale as `PrimaryCapsules.adapt` does.

        Parts of a row then have this root mean square length.
        """
        count, total, square, low, high = X.shape[0], 0.0, 0.0, np.inf, -np.inf
        for part in gen_batches(count, ROWS):
            rows = dense(X[part]).astype("float64")
            total, square = total + rows.sum(axis=0), square + np.square(rows).sum(axis=0)
            low, high = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
        self._trained_range = range_of(low, high)
        self.mean_ = total / count
        energy = square.sum() / count
        spread = energy - np.square(self.mean_).sum()
        # A smaller spread is a rounding error.
        if not spread > 1e-12 * energy:
            raise ValueError(
                f"`X` must have rows that differ. Received: {count} equal rows, n_samples={count}"
            )
        self.scale_ = float(length / np.sqrt(spread / parts))

    def _compile(self, model, X):
        """Compile a model with a learning rate that falls linearly to a tenth."""
        import keras

        rate = real_number("learning_rate", self.learning_rate, above=0)
        steps = self._batches(X)[0] * whole_number("n_iter", self.n_iter)
        falling = keras.optimizers.schedules.PolynomialDecay(rate, steps, rate / 10)
        sgd = keras.optimizers.SGD(falling, momentum=below_one("momentum", self.momentum))
        model.compile(sgd, jit_compile=False)

    def _batches(self, X):
        """Return the number of batches in an epoch and the number of rows in a batch."""
        batches = -(-X.shape[0] // whole_number("batch_size", self.batch_size))
        return batches, -(-X.shape[0] // batches)

    def _train(self, model, X, rng, shape):
        """Train a model on rows of X, as inputs of this shape.

        Returns:
            Inputs of the first rows, the relative error of the last epoch, and what is wrong with
            it, as `training.sanity` says.
        """
        from keras_capsule_poe.models.base.contrastive import compiled_steps

        self._compile(model, X)
        batches, rows = self._batches(X)
        shape = rows, *shape
        train = compiled_steps(model, shape)
        at_once = max(1, int(BLOCK_BYTES / (4 * np.prod(shape))))
        for _ in range(self.n_iter):
            model.reset_metrics()
            # The last batch is filled up with rows of the first.
            order = np.resize(rng.permutation(X.shape[0]), (batches, rows))
            for block in gen_batches(batches, at_once):
                x = self._inputs_of(X, order[block].ravel())
                train(x.reshape(-1, *shape))
        x, error = self._inputs_of(X, slice(self.ROWS)), float(model.loss_tracker.result())
        return x, error, worse_than_mean(x, error, np.mean(x, axis=0))


def precise():
    """Return the type in which a row has the same results in any batch."""
    import keras

    # JAX has no float64 by default.
    return "float32" if keras.backend.backend() == "jax" else "float64"


class Far:
    """Counts rows far outside of the range of the training rows, and warns of them."""

    def __init__(self, trained_range):
        self.range, self.rows, self.first = trained_range, 0, None

    def count(self, v):
        """Count rows v (n, D)."""
        if self.range is None:
            return
        low, width = self.range
        # A value that overflows is far outside.
        with np.errstate(over="ignore"):
            is_far = np.abs((v - low) / width - 0.5) > FAR + 0.5
        is_row = is_far.any(axis=1)
        self.rows += int(is_row.sum())
        if self.first is None and is_row.any():
            row = is_row.argmax()
            feature = is_far[row].argmax()
            low, width = (np.broadcast_to(part, v.shape[1:])[feature] for part in self.range)
            self.first = feature, v[row, feature], low, low + width

    def warn(self, rows):
        """Warn if any of so many rows were far outside."""
        if self.rows:
            feature, value, low, high = self.first
            warnings.warn(
                f"`X` has {self.rows} of {rows} rows far outside of the range of the training "
                f"rows, such as {value:g} in feature {feature}, which had values from {low:g} to "
                f"{high:g}. Scale new rows as the training rows.",
                UserWarning,
                stacklevel=4,
            )


def dense(rows):
    """Return rows as a dense array."""
    return rows.toarray() if sparse.issparse(rows) else rows


def range_of(low, high):
    """Return the smallest value and the width of each feature, above zero, from its extremes."""
    width = high - low
    # The unit of a constant feature is unknown: it is that of the widest one.
    return low, np.where(width > 0, width, width.max(initial=0) or 1)
