"""What every plain model of features is asked: to be fitted, then to draw."""

import numpy as np

# Of samples at a time; and of features, where a figure of each is found.
ROWS = 1_000
_COLUMNS = 256


class FeatureModel:
    """A generative model of features (N, K), of which a subclass has `_fit` and `_blocks`."""

    _is_fitted = False

    def fit(self, features):
        """Fits the model.

        Args:
            features: Array (N, K), floating point of any precision.

        Returns:
            self.

        Raises:
            ValueError: If it is not a matrix of two or more rows.
        """
        features = np.asarray(features)
        if features.ndim != 2 or len(features) < 2:
            raise ValueError(
                f"`features` must be (N, K), with 2 or more rows. Received: shape {features.shape}"
            )
        self._fit(features)
        self._is_fitted = True
        return self

    def sample(self, n, seed):
        """Draws features.

        Args:
            n: int, one or more.
            seed: int.

        Returns:
            float32 array (n, K).

        Raises:
            RuntimeError: If nothing is fitted yet.
        """
        return np.concatenate(list(self.blocks(n, seed)))

    def blocks(self, n, seed):
        """As `sample`, a part at a time: an iterator of arrays of `ROWS` rows, the last of less."""
        if not self._is_fitted:
            raise RuntimeError("This control is not fitted: call `fit` first")
        return self._blocks(n, seed)


def of_columns(function, features):
    """A function of the columns of features (N, K), to (K,), without a copy of all of them.

    Examples:

    >>> of_columns(lambda some: some.max(axis=0), np.eye(3)).tolist()
    [1.0, 1.0, 1.0]
    """
    starts = range(0, features.shape[1], _COLUMNS)
    return np.concatenate([function(features[:, start : start + _COLUMNS]) for start in starts])
