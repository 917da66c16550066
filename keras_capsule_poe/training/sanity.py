"""Metrics of a model on inputs that it is not trained on."""

import numpy as np

from keras_capsule_poe.data.streams import sequential_batches
from keras_capsule_poe.errors import counted


def figures(model, x, at_once):
    """Return a compiled model's metrics, a dict of floats, averaged over inputs x (N, ...)."""
    # For few inputs a pipeline takes longer than the model. Keras' own pipeline may wait at its end
    # for the thread that tunes it, see `AHEAD`.
    if len(x) <= at_once:
        return model.test_on_batch(x, return_dict=True)
    return model.evaluate(sequential_batches(x, at_once), verbose=0, return_dict=True)


SATURATED, OFF = 0.95, 1e-3
# A barely trained model is about as good as the mean of other rows.
MARGIN = 1.1
# Inputs of mean zero have this error if nothing was learned.
NOTHING = 0.98
# Fewer held-out images make a metric that says little.
FEW = 3
# One capsule wins more images than this if the others are of no use.
ALONE = 0.99
# Fewer held-out images say nothing about a classifier or about groups.
FEWEST = 50
# Trained capsules explain at least this share of what k-means explains: those of MNIST 0.88, after
# 150 steps 0.3 to 0.6.
SEPARATED = 0.6
# Training images and principal components for k-means.
CLUSTERED, COMPONENTS = 2000, 64


def worse_than_mean(x, error, mean):
    """Return a warning in a list if the relative error of x (N, ...) is that of a mean (...).

    It is the mean of training inputs: a few held-out inputs are too near to their own mean.
    """
    x = np.asarray(x, "float32")
    size, of_mean = np.sum(x**2), np.sum((x - mean) ** 2)
    # Not a ratio, because all rows may be zero (black images).
    if error * size <= MARGIN * of_mean and not (error > NOTHING and size):
        return []
    bar = of_mean / size if size else 0.0
    few = f" on only {counted(len(x), 'held-out image')}" if len(x) < FEW else ""
    return [f"it learned nothing: relative error {error:.3g}{few}, that of the mean is {bar:.3g}"]


def off_or_saturated(probability):
    """Return a warning in a list if the mean probability of the experts is near zero or one."""
    if OFF <= probability <= SATURATED:
        return []
    state = "on" if probability > SATURATED else "off"
    return [f"every expert is {state} for every image: mean probability {probability:.3g}"]


def one_winner(shares):
    """Return a warning in a list if one of several capsules wins all images."""
    if len(shares) < 2 or max(shares) <= ALONE:
        return []
    return [f"one capsule wins {max(shares):.0%} of the images, the others are not used"]


def worse_than_clusters(training, held_out, number, seed=0):
    """Return a warning in a list if groups separate held-out rows far worse than k-means.

    Args:
        training, held_out: pairs of features (N, ...) and the groups (N,) of the rows.
        number: int, the number of groups, and of clusters.
    """
    (train, groups), (held_out, held_out_groups) = training, held_out
    if len(held_out) < FEWEST or len(train) <= number or number < 2:
        return []
    from sklearn.cluster import KMeans
    from sklearn.utils.extmath import randomized_svd

    train, held_out = (np.reshape(rows, (len(rows), -1)) for rows in (train, held_out))
    mean = train.mean(axis=0)
    kept = min(COMPONENTS, *train.shape)
    axes = randomized_svd(train - mean, kept, n_iter=2, random_state=seed)[2].T
    train, held_out = (train - mean) @ axes, (held_out - mean) @ axes
    clusters = KMeans(number, n_init=3, random_state=seed).fit(train)
    own = _explained(train, groups, held_out, held_out_groups)
    theirs = _explained(train, clusters.labels_, held_out, clusters.predict(held_out))
    if own >= SEPARATED * theirs:
        return []
    return [
        "its capsules separate held-out images worse than k-means: as groups they explain "
        f"{max(own, 0):.0%} of the variance of features, {number} clusters {theirs:.0%}"
    ]


def _explained(train, groups, held_out, held_out_groups):
    """Return the share of the variance of held-out rows that the groups' training means explain."""
    means = {group: train[groups == group].mean(axis=0) for group in np.unique(groups)}
    whole = train.mean(axis=0)
    guess = np.stack([means.get(group, whole) for group in held_out_groups])
    return 1 - np.sum((held_out - guess) ** 2) / max(np.sum((held_out - whole) ** 2), 1e-30)


def no_better_than_commonest(labels, accuracy):
    """Return a warning in a list if the accuracy is at most the commonest label's share."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or len(labels) < FEWEST:
        return []
    share = np.unique(labels, return_counts=True)[1].max() / len(labels)
    if accuracy > share:
        return []
    return [
        f"it learned nothing: accuracy {accuracy:.3g}, that of the most frequent class is "
        f"{share:.3g}"
    ]


def warn(run, stage, found):
    """Report warnings of a stage; return `{"complaints": lines}` for its metrics, or {}."""
    given = run.settings.numbers_given(stage)
    more = f", or other values than {given}" if given else ""
    lines = [
        f"{text}. Train longer, or with a lower learning rate of the {stage}{more}"
        for text in found
    ]
    for line in lines:
        run.reporter.note(f"{stage}: {line}")
    return {"complaints": lines} if lines else {}
