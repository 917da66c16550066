"""Initialization of the experts' maps from training images."""

import numpy as np

from keras_capsule_poe.data import batches, epoch_order, sequential_batches
from keras_capsule_poe.data.mapping import chunks, to_pixels
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.metrics import relative_error
from keras_capsule_poe.models.base import feature_building as build
from keras_capsule_poe.models.base import feature_files as stored
from keras_capsule_poe.models.base.feature_building import EncodedRows
from keras_capsule_poe.models.base.saved import save_whole
from keras_capsule_poe.plotting import reconstruction_rows, sample_rows
from keras_capsule_poe.training.sanity import warn, worse_than_mean

# Images for k-means: enough for twenty clusters, and a limit on memory.
CLUSTERED = 10_000
CLUSTERED_BYTES = 200e6
STARTS = ("principal", "clusters", "random", "noise")
# A single k-means run may end in a poor optimum. Many runs on a few principal components find
# tighter clusters in less time than a few runs on all dimensions.
CLUSTERINGS = 20
PRINCIPAL_AXES = 64
# Images for each principal direction of a cluster, which a few images do not show.
PER_DIRECTION = 20
# Images compared with the means of clusters at once.
AT_ONCE = 2_000


class MapStart:
    """Initialization of the experts' maps.

    They are principal directions or images of clusters, random images, or stay noise.
    """

    def __init__(self, initializer="principal", image_length=0.5):
        if initializer not in STARTS:
            listed = " or ".join(repr(known) for known in STARTS)
            raise ValueError(
                f"`initializer` must be {listed}. Received: initializer={initializer!r}"
            )
        if not image_length > 0:
            raise ValueError(
                f"`image_length` must be above zero. Received: image_length={image_length!r}"
            )
        self.initializer, self.image_length = initializer, image_length

    def apply(self, experts, x_of, images, seed):
        """Initialize the maps of a built layer from primary capsules `x_of(rows)` (N, I, D)."""
        if self.initializer == "noise":
            return
        size = experts.capsules, experts.dim
        if self.initializer == "principal" and images > experts.capsules:
            directions = principal_directions(x_of, images, *size, seed)
            experts.start_from_images(directions, self.image_length)
            return
        rows = starting_images(x_of, images, *size, self.initializer, seed)
        experts.start_from_images(x_of(rows), self.image_length)


def starting_images(x_of, images, experts, dim, start, seed):
    """Return the indices (J E,) of training images for the E maps of each of J experts."""
    if start == "random" or images <= experts:
        # Images repeat only after all are used: equal maps would stay equal for good.
        return np.resize(epoch_order(images, seed, epoch=0), experts * dim)
    chosen, _, distances = clustered(x_of, images, experts, seed)
    nearest = distances.argmin(axis=1)
    random = np.random.default_rng(seed)
    rows = []
    for expert, distance in enumerate(distances.T):
        inside = random.permutation(np.flatnonzero(nearest == expert))
        # Fill a small cluster with the nearest images of other clusters.
        others = np.argsort(np.where(nearest == expert, np.inf, distance))
        rows.append(np.resize(np.concatenate([inside, others])[:dim], dim))
    return chosen[np.concatenate(rows)]


def principal_directions(x_of, images, experts, dim, seed):
    """Return E principal directions (J E, I, D) of the images of each of J clusters.

    They are the leading right singular vectors of the cluster's primary capsules, not centred, so
    that the first one is close to its mean.
    """
    from sklearn.utils.extmath import randomized_svd

    random, found = np.random.default_rng(seed), []
    for rows in cluster_rows(x_of, images, experts, dim, seed):
        x = x_of(rows)
        shape = x.shape[1:]
        x = x.reshape(len(x), -1)
        # Fewer images than directions leave some of them random.
        directions = random.normal(size=(dim, x.shape[1]))
        kept = min(dim, *x.shape)
        directions[:kept] = randomized_svd(x, kept, n_iter=2, random_state=seed)[2]
        found.append((directions / np.linalg.norm(directions, axis=1)[:, None]).reshape(-1, *shape))
    return np.concatenate(found).astype("float32")


def cluster_rows(x_of, images, experts, dim, seed):
    """Return the image indices of each of J clusters, some for each of E directions."""
    wanted = PER_DIRECTION * dim
    chosen, x, distances = clustered(x_of, images, experts, seed)
    nearest = distances.argmin(axis=1)
    sizes = np.bincount(nearest, minlength=experts)
    # The cluster's own images, then the nearest images of other clusters.
    orders = [
        np.argsort(np.where(nearest == k, 0, 1 + distance))
        for k, distance in enumerate(distances.T)
    ]
    rows = [chosen[order[: max(2 * dim, size)]] for order, size in zip(orders, sizes)]
    more = np.sort(epoch_order(images, seed, epoch=0)[len(chosen) : experts * wanted])
    if len(more):
        means = [x[order[: max(1, size)]].mean(axis=0) for order, size in zip(orders, sizes)]
        joins = np.concatenate([_nearest(x_of(part), means) for part in chunks(more, AT_ONCE)])
        rows = [np.concatenate([own, more[joins == k]]) for k, own in enumerate(rows)]
    return [np.sort(own[:wanted]) for own in rows]


def _nearest(x, means):
    """Return for each of x (N, I, D) the index of the nearest of the means (J, I D)."""
    means = np.stack(means)
    # |x - m|^2 without |x|^2, which does not change the order.
    return (np.square(means).sum(axis=1) - 2 * x.reshape(len(x), -1) @ means.T).argmin(axis=1)


def clustered(x_of, images, experts, seed):
    """Return image indices (n,), primary capsules (n, I D) and cluster distances (n, J)."""
    from sklearn.cluster import KMeans
    from sklearn.utils.extmath import randomized_svd

    order = epoch_order(images, seed, epoch=0)
    bytes_each = 4 * x_of(order[:1]).size
    chosen = np.sort(order[: max(experts, min(CLUSTERED, int(CLUSTERED_BYTES / bytes_each)))])
    x = x_of(chosen).reshape(len(chosen), -1)
    kept = min(PRINCIPAL_AXES, *x.shape)
    left, sizes, _ = randomized_svd(x - x.mean(axis=0), kept, n_iter=2, random_state=seed)
    components = left * sizes
    clusters = KMeans(experts, n_init=CLUSTERINGS, random_state=seed).fit(components)
    return chosen, x, clusters.transform(components)


SHOWN = 12


def autoencoder(run):
    """Train the convolutional autoencoder."""
    config, data = run.config, run.data
    model = build.build_autoencoder(config, data.image_shape)
    # XLA makes large convolutions many times slower on a CPU.
    model.compile(
        build.optimizer(config, "autoencoder", len(data.train)),
        "binary_crossentropy",
        jit_compile=False,
    )
    held_out = to_pixels(data.held_out.images)
    at_once = config["autoencoder"].batch_size

    def after_epoch():
        decoded = model.predict(sequential_batches(held_out, at_once), verbose=0)
        return {"held_out_relative_error": float(relative_error(decoded, held_out))}

    def picture(path):
        shown = held_out[:SHOWN]
        save_grid(path, [shown, model.predict_on_batch(shown)])

    def stream(**order):
        return batches(data.train.images, **order)

    schedule = build.schedule(config, "autoencoder")
    last = run.fit("autoencoder", model, stream, schedule, after_epoch, picture)
    stored.save_model(run, "autoencoder", model)
    found = worse_than_mean(held_out, last["held_out_relative_error"])
    return {**last, **warn(run, "autoencoder", found)}


def features(run):
    """Compute the feature maps, cached if the disk limit allows, and adapt the primary capsules."""
    model = stored.load_model(run, "autoencoder")
    data = run.data
    every = len(data.train) + len(data.held_out)
    stays = build.on_disk(run.config, model.feature_shape, every)
    for part, images in (("train", data.train.images), ("held_out", data.held_out.images)):
        stored.save_features(run, part, EncodedRows(model, images, run.distribution), stays)
    primary = build.build_primary(run.config, model.feature_shape)
    maps = stored.features(run, "train")
    primary.adapt(chunks(maps, 500))
    gain = primary.feature_gain.numpy()
    stored.save_arrays(run, "features/primary.npz", mean=primary.mean.numpy(), gain=gain)
    return {"feature_gain": float(gain)}


def export_model(run, model):
    """Export the whole model for Keras and as a SavedModel, and draw its images."""
    # Parts that do not fit together fail here, before any file is replaced.
    shown = reconstruction_rows(model, run.data.test.images[:SHOWN])
    version = save_whole(run, model)
    save_grid(run.path("reconstructions.png"), list(shown.values()))
    for domain in model.modes["single"].domains:
        rows = sample_rows(model, 4, run.config.seed, "single", domain)
        save_grid(run.path(f"samples-{domain}.png"), rows)
    return {"saved_model": version}
