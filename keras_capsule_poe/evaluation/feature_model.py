"""The base class of generative baselines of features."""

import numpy as np

# Block sizes: rows of samples, and columns for `of_columns`.
ROWS = 1_000
_COLUMNS = 256


class FeatureModel:
    """Generative model of features (N, K). A subclass implements `_fit` and `_blocks`."""

    _is_fitted = False

    def fit(self, features):
        """Fit the model to features (N, K) of any floating point type, and return it."""
        features = np.asarray(features)
        if features.ndim != 2 or len(features) < 2:
            raise ValueError(
                f"`features` must be (N, K), with 2 or more rows. Received: shape {features.shape}"
            )
        self._fit(features)
        self._is_fitted = True
        return self

    def sample(self, n, seed):
        """Return random features (n, K), float32."""
        return np.concatenate(list(self.blocks(n, seed)))

    def blocks(self, n, seed):
        """Return an iterator over the rows of `sample` in blocks of at most `ROWS`."""
        if not self._is_fitted:
            raise RuntimeError("This control is not fitted: call `fit` first")
        return self._blocks(n, seed)


def of_columns(function, features):
    """Apply a column statistic to features (N, K) in blocks, without copying all of them."""
    starts = range(0, features.shape[1], _COLUMNS)
    return np.concatenate([function(features[:, start : start + _COLUMNS]) for start in starts])
