"""What every plain model of features is asked: to be fitted, then to draw."""

import numpy as np


class FeatureModel:
    """A generative model of features (N, K), of which a subclass has `_fit` and `_draw`."""

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
        if not self._is_fitted:
            raise RuntimeError("This control is not fitted: call `fit` first")
        return self._draw(n, seed)
