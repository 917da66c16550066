"""Clusters of images or rows for scikit-learn: the parent capsules of a mixture."""

import functools
import math
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import ClusterMixin

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.arguments import share, whole_number
from keras_capsule_poe.sklearn.base import TrainedByKeras
from keras_capsule_poe.training.sanity import one_winner

# Root mean square of a feature, in units of the noise of the mixture.
FEATURE_SCALE = 0.42


class CapsuleClusterer(ClusterMixin, TrainedByKeras):
    """Clusters of images, or of any rows, for scikit-learn: one capsule makes each image.

    This is a mixture of expert neurons (`NeuronMixture`). Capsules start from the mean and the
    principal axes of k-means clusters, and learn by the exact gradient of the likelihood. The
    cluster of an image is its most probable capsule.

    X is an array of images (N, H, W) or (N, H, W, C), or of rows (N, H W C), also sparse. Images of
    dtype uint8 are divided by 255. Rows and images of the same values have the same clusters.

    Args:
        n_capsules: int, J, number of capsules, and so of clusters.
        capsule_dim: int, E, binary neurons of a capsule, from 2 to 20. They describe how the images
            of a cluster vary.
        image_shape: Tuple (H, W) or (H, W, C), shape of an image where X has rows, or None.
        learning_rate: float, at the start. It falls linearly to a tenth.
        momentum: float in [0, 1).
        load_balancing: float in [0, 1], step towards equally frequent capsules. 0: off.
        batch_size: int, largest number of rows in a step.
        n_iter: int, number of epochs.
        random_state: int, `numpy.random.RandomState` or None.

    Attributes:
        labels_: Integers (N,), the cluster of each training image.
        cluster_centers_: Array (J, n_features), the mean of the images that each capsule makes.
        image_shape_: Tuple (H, W, C), or None if X had rows and no `image_shape` was given.
        mean_: Array (n_features,), feature means.
        scale_: float, factor on the centred features.
        n_features_in_: int, number of features, H W C.
        feature_names_in_: Array (n_features,) of str, if X has column names.

    Raises:
        ValueError: If an argument is invalid, there are fewer rows than capsules, all rows are
            equal, or images have another shape than in training.

    Example:

    >>> from keras_capsule_poe.sklearn import CapsuleClusterer
    >>> images = np.zeros((20, 8, 8))
    >>> images[:10, :4], images[10:, :, :4] = 1, 1
    >>> clusterer = CapsuleClusterer(2, 2, n_iter=1, random_state=0)
    >>> sorted(np.bincount(clusterer.fit_predict(images)).tolist())
    [10, 10]
    >>> clusterer.transform(images).shape, clusterer.predict(images.reshape(20, 64)).shape
    ((20, 2), (20,))

    Reference:

    - [Nair & Hinton, 2008](https://papers.nips.cc/paper/3536), implicit mixtures
    """

    ROWS, LAYER = 512, "machine"

    def __init__(
        self,
        n_capsules: int = 10,
        capsule_dim: int = 8,
        *,
        image_shape: tuple[int, ...] | None = None,
        learning_rate: float = 0.02,
        momentum: float = 0.9,
        load_balancing: float = 0.3,
        batch_size: int = 32,
        n_iter: int = 10,
        random_state: Any = None,
    ) -> None:
        self.n_capsules = n_capsules
        self.capsule_dim = capsule_dim
        self.image_shape = image_shape
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.load_balancing = load_balancing
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.random_state = random_state

    def fit(self, X: Tensor, y: Any = None) -> "CapsuleClusterer":
        """Train on images or rows X; y is ignored."""
        X = self._validated(X, reset=True, ensure_min_samples=2)
        capsules = whole_number("n_capsules", self.n_capsules)
        if X.shape[0] < capsules:
            raise ValueError(
                "`n_capsules` must be at most the number of images. "
                f"Received: n_capsules={capsules}, n_samples={X.shape[0]}"
            )
        self._set_scale(X, FEATURE_SCALE, X.shape[1])
        rng = self._generator()
        model = self._model()
        self._start(model.machine, X, int(rng.integers(2**31 - 1)))
        _, _, found = self._train(model, X, rng, (1, X.shape[1]))
        self._weights = model.machine.get_weights()
        self.labels_ = self._parents(X).argmax(axis=1)
        shares = np.bincount(self.labels_, minlength=capsules) / len(self.labels_)
        self.cluster_centers_ = np.stack([self._center(X, k) for k in range(capsules)])
        self._warn(self.n_iter * self._batches(X)[0], found + one_winner(shares))
        return self

    def _validated(self, X, reset=False, **options):
        """Return rows (N, H W C) of images, or rows as they are."""
        dense = None if sparse.issparse(X) else np.asarray(X)
        if dense is not None and dense.ndim in (3, 4):
            shape = dense.shape[1:] if dense.ndim == 4 else (*dense.shape[1:], 1)
            X = dense.reshape(len(dense), math.prod(shape))
        else:
            shape = None
        if dense is not None and dense.dtype == np.uint8:
            X = X / np.float32(255) if shape else np.asarray(X, "float32") / 255
        X = super()._validated(X, reset=reset, **options)
        if reset:
            self.image_shape_ = self._given_shape(X.shape[1], shape)
        elif None not in (shape, self.image_shape_) and shape != self.image_shape_:
            raise ValueError(
                f"`X` must have images of the shape {self.image_shape_}. Received: shape {shape}"
            )
        return X

    def _given_shape(self, features, found):
        """Return the shape (H, W, C) of an image, or None for rows without one."""
        if self.image_shape is None:
            return found
        shape = tuple(whole_number("image_shape", size) for size in self.image_shape)
        shape = (*shape, 1) if len(shape) == 2 else shape
        if len(shape) != 3 or math.prod(shape) != features or found not in (None, shape):
            received = f"{features} features" if found is None else f"images of shape {found}"
            raise ValueError(
                "`image_shape` must be (H, W) or (H, W, C) of the images in X. "
                f"Received: image_shape={self.image_shape!r}, X with {received}"
            )
        return shape

    def _model(self, dtype="float32"):
        """Return built experts that train a mixture."""
        import keras

        from keras_capsule_poe.models.neurons.experts import NeuronMixtureExperts
        from keras_capsule_poe.models.neurons.layers import NeuronMixture

        machine = NeuronMixture(
            whole_number("n_capsules", self.n_capsules),
            whole_number("capsule_dim", self.capsule_dim, least=2),
            coefficient_sum=1.0,
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.01, seed=0),
            dtype=dtype,
        )
        balancing = share("load_balancing", self.load_balancing, or_zero=True)
        model = NeuronMixtureExperts(machine, load_balancing=balancing, dtype=dtype)
        model.build((None, 1, self.n_features_in_))
        return model

    def _start(self, machine, X, seed):
        """Start each capsule from a k-means cluster."""
        from keras_capsule_poe.models.base.clusters import clustered

        x_of = functools.partial(self._inputs_of, X)
        _, x, distances = clustered(x_of, X.shape[0], machine.capsules, seed)
        nearest, shape = distances.argmin(axis=1), (-1, 1, X.shape[1])
        groups = [x[nearest == k].reshape(shape) for k in range(machine.capsules)]
        machine.start_from_groups(groups)

    def _inputs(self, rows, dtype="float32"):
        """Return visible neurons (N, 1, D) of rows (N, D)."""
        return (self.scale_ * (rows - self.mean_)).astype(dtype)[:, None]

    def _center(self, X, capsule):
        rows = X[np.flatnonzero(self.labels_ == capsule)]
        return np.asarray(rows.mean(axis=0)).ravel() if rows.shape[0] else self.mean_

    def transform(self, X: Tensor) -> Tensor:
        """Return the probability (N, J) of each capsule to have made images or rows X."""
        return self._parents(X)

    def predict(self, X: Tensor) -> Tensor:
        """Return the most probable capsule (N,) of images or rows X."""
        return self._parents(X).argmax(axis=1)

    def score_samples(self, X: Tensor) -> Tensor:
        """Return the log-likelihood (N,) of images or rows X, in nats.

        It is exact, so that searches may compare models of different sizes on the same features.
        """

        def of_rows(machine, v):
            # The density of features, not of visible neurons.
            unit = self.n_features_in_ * math.log(self.scale_)
            return np.asarray(machine.posterior(v).log_density) + unit

        return self._of_layer(of_rows, X)

    @property
    def _n_features_out(self):
        return self.n_capsules

    def _parents(self, X):
        def of_rows(machine, v):
            return np.asarray(machine.posterior(v).parent)

        return self._of_layer(of_rows, X, (self.n_capsules,))

    def to_model(self) -> Any:
        """Return the `NeuronMixture` of visible neurons (N, 1, D), D features scaled."""
        return self._trained()[1]
