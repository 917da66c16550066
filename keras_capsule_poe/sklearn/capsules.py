"""Features of a product of expert capsules for scikit-learn."""

import functools
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.arguments import not_negative, one_of, real_number, whole_number
from keras_capsule_poe.sklearn.base import TrainedByKeras
from keras_capsule_poe.training.sanity import off_or_saturated, one_winner

OUTPUTS = ("capsules", "probabilities")


class CapsuleTransformer(TrainedByKeras):
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

    # Fewer, since an expert has a vector for each.
    ROWS, LAYER = 256, "experts"

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
        from keras_capsule_poe.core.labels import winners
        from keras_capsule_poe.models.base.clusters import initialize_maps

        one_of("output", self.output, OUTPUTS)
        X = self._validated(X, reset=True, ensure_min_samples=2)
        dim = whole_number("primary_dim", self.primary_dim)
        self._primary_shape = -(-X.shape[1] // dim), dim
        length = real_number("target_length", self.target_length, above=0)
        self._set_scale(X, length, self._primary_shape[0])
        rng = self._generator()
        model, x_of = self._model(), functools.partial(self._inputs_of, X)
        initialize_maps(model.experts, "random", x_of, X.shape[0], int(rng.integers(2**31 - 1)))
        x, self.reconstruction_error_, found = self._train(model, X, rng, self._primary_shape)
        self.maps_ = np.array(model.experts.kernel)
        won = np.bincount(winners(np.asarray(model(x))), minlength=self.n_capsules) / len(x)
        found += one_winner(won)
        found += off_or_saturated(float(model.probability_mean.result()))
        self._warn(self.n_iter * self._batches(X)[0], found)
        return self

    def _inputs(self, rows, dtype="float32"):
        """Return squashed primary capsules (N, I, D) of rows (N, n_features)."""
        from keras_capsule_poe.core.numerics import squash

        inputs, dim = self._primary_shape
        z = np.zeros((len(rows), inputs * dim), dtype)
        z[:, : rows.shape[1]] = self.scale_ * (rows - self.mean_)
        return np.asarray(squash(z.reshape(-1, inputs, dim)))

    def _model(self, dtype="float32"):
        """Return a built `CapsuleEncoder`."""
        from keras_capsule_poe.models.capsule_poe.encoder import CapsuleEncoder, initial_maps
        from keras_capsule_poe.models.capsule_poe.layers import CapsulePoE

        experts = CapsulePoE(
            whole_number("n_capsules", self.n_capsules),
            whole_number("capsule_dim", self.capsule_dim),
            routing_iterations=whole_number("routing_iterations", self.routing_iterations),
            coefficient_sum="mean",
            implementation="reference",
            **initial_maps(not_negative("weight_decay", self.weight_decay), seed=0),
            dtype=dtype,
        )
        model = CapsuleEncoder(experts, dtype=dtype)
        model.build((None, *self._primary_shape))
        return model

    @property
    def _weights(self):
        return [self.maps_]

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

        return self._of_layer(encoded, X, (self._n_features_out,))

    def score_samples(self, X: Tensor) -> Tensor:
        """Return minus the free energy (N,) of rows X, in nats.

        This is the log-probability density of the primary capsules without its constant. It
        ranks rows under one model, and is not comparable between models.
        """
        return self._of_layer(lambda experts, x: -np.asarray(experts.free_energy(x)), X)

    def to_model(self) -> Any:
        """Return the `CapsuleEncoder` of primary capsules (N, I, D)."""
        return self._trained()[0]
