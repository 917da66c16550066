"""The margin loss and the spread loss.

Rejected: a margin that a traced graph does not see grow, or that begins anew; a class that is
asked to lie above itself.
"""

import keras
import numpy as np
import pytest

from keras_capsule_poe import MarginLoss, SpreadLoss, SpreadMargin


def by_hand(labels, lengths, positive=0.9, negative=0.1, weight=0.5):
    total = 0.0
    for t, v in zip(labels, lengths):
        total += t * max(0, positive - v) ** 2 + weight * (1 - t) * max(0, v - negative) ** 2
    return total


def test_it_is_summed_over_classes_and_averaged_over_images():
    random = np.random.default_rng(0)
    # Several labels an image, and none.
    labels, lengths = random.integers(2, size=(6, 5)), random.uniform(size=(6, 5))
    each = [by_hand(*row) for row in zip(labels, lengths)]
    np.testing.assert_allclose(MarginLoss(reduction=None)(labels, lengths), each, rtol=1e-5)
    np.testing.assert_allclose(MarginLoss()(labels, lengths), np.mean(each), rtol=1e-5)
    other = MarginLoss(0.8, 0.2, 1.0, reduction=None)
    each = [by_hand(*row, 0.8, 0.2, 1.0) for row in zip(labels, lengths)]
    np.testing.assert_allclose(other(labels, lengths), each, rtol=1e-5)


def test_nothing_is_lost_beyond_the_margins():
    assert float(MarginLoss()(np.array([[1, 0]]), np.array([[0.95, 0.05]]))) == 0


def test_integers_are_refused_in_words():
    for labels in (np.array([1, 0]), np.array([[1], [0]])):
        with pytest.raises(ValueError, match="`y_true` must have the shape.*Received"):
            MarginLoss().call(labels, np.ones((2, 3)))


@pytest.mark.parametrize("value", [0, -1, True, float("nan"), "much"])
def test_bad_arguments_are_refused(value):
    for name in ("positive", "negative", "absent_weight"):
        with pytest.raises(ValueError, match=rf"`{name}` must be .*Received: {name}="):
            MarginLoss(**{name: value})


def test_config_round_trip():
    loss = MarginLoss(0.8, 0.2, 1.0)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert copy.get_config() == loss.get_config()


def test_spread_is_what_the_others_lie_above_the_right_one_less_a_margin():
    random = np.random.default_rng(0)
    classes, activations = random.integers(5, size=6), random.uniform(size=(6, 5))
    for m in (0.2, 0.9):
        each = [
            sum(max(0, m - (row[t] - row[k])) ** 2 for k in range(5) if k != t)
            for t, row in zip(classes, activations)
        ]
        loss = SpreadLoss(m, reduction=None)
        np.testing.assert_allclose(loss(np.eye(5)[classes], activations), each, rtol=1e-5)
        official = SpreadLoss(m, "official")(np.eye(5)[classes], activations)
        np.testing.assert_allclose(official, np.mean(each) / 5, rtol=1e-5)
    again = keras.losses.deserialize(keras.losses.serialize(SpreadLoss(0.3, "official")))
    assert again.margin == pytest.approx(0.3) and again.scaling == "official"
    for labels in (np.array([1, 0]), np.array([[1], [0]])):
        with pytest.raises(ValueError, match="`y_true` must have the shape.*Received"):
            SpreadLoss().call(labels, np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"`margin` must lie in \(0, 1\]. Received: margin=1.5"):
        SpreadLoss(1.5)


def test_spread_loss_of_several_classes_is_the_sum_over_them():
    """Rejects the sum of their activations in the place of each: with it, one may be missing."""
    rows = np.array([[0.95, 0.0, 0.05, 0.1], [0.5, 0.4, 0.3, 0.2]])
    labels, m = np.array([[1, 1, 0, 0], [0, 1, 0, 1]]), 0.9
    each = [
        sum(max(0, m - (a[t] - a[k])) ** 2 for t in range(4) for k in range(4) if y[t] > y[k])
        for y, a in zip(labels, rows)
    ]
    assert min(each) > 1
    np.testing.assert_allclose(SpreadLoss(m, reduction=None)(labels, rows), each, rtol=1e-5)


def test_the_margin_grows_step_by_step_and_goes_on_where_it_stood():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(3, activation="sigmoid")(inputs))
    loss = SpreadLoss()
    model.compile(keras.optimizers.SGD(0.0), loss, jit_compile=False)
    x, y = np.zeros((8, 3), "float32"), np.eye(3)[[0, 1, 2, 0, 1, 2, 0, 1]]
    # Nothing is learnt and all activations are 1/2: two others, each nearer than the margin.
    seen = []
    for epochs in (1, 3):
        after = [SpreadMargin(steps=4), keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append(loss.margin)
        )]  # fmt: skip
        history = model.fit(x, y, batch_size=8, epochs=epochs, callbacks=after, verbose=0).history
    assert seen == pytest.approx([0.2, 0.375, 0.55, 0.725])
    assert history["loss"] == pytest.approx([2 * m**2 for m in seen[1:]])


def test_the_official_margin_is_that_of_the_published_code():
    rising = SpreadMargin(steps=700_000, last=0.99, rise="official")
    for step in (0, 50_000, 200_000, 400_000, 700_000, 10**6):
        x = min(10, step / 50_000 - 4)
        assert rising.at(step) == pytest.approx(0.2 + 0.79 / (1 + np.exp(-x)))
    for name, value in (("steps", 0), ("first", 0.0), ("last", 1.1), ("rise", "fast")):
        with pytest.raises(ValueError, match=f"`{name}` must.*Received: {name}="):
            SpreadMargin(**{"steps": 1, name: value})
    with pytest.raises(ValueError, match="must not fall .*Received: first=0.5, last=0.4"):
        SpreadMargin(steps=1, first=0.5, last=0.4)
    model, rising = keras.Sequential([keras.layers.Dense(2)]), SpreadMargin(steps=1)
    model.compile(loss="mse")
    rising.set_model(model)
    with pytest.raises(ValueError, match="`loss` must be a SpreadLoss.*with the loss 'mse'"):
        rising.on_train_batch_begin(0)


@pytest.mark.parametrize("loss", [MarginLoss(), SpreadLoss()])
def test_labels_of_other_images_are_refused(loss):
    """Rejects one prediction that stands for all."""
    with pytest.raises(ValueError, match="`y_true` must have the shape of `y_pred`"):
        loss(np.eye(3), np.eye(3)[:1])
