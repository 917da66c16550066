"""The capsule network: loss, mask and gradient by hand, what it answers, saved.

Rejected: a reconstruction of the longest capsule in training; an error that is a mean over the
pixels; a traversal that shows other capsules, moves them all, or gives the length back.
"""

import keras
import numpy as np
import pytest
from scipy.special import softmax

from keras_capsule_poe import (
    CapsNet,
    ConvCapsules,
    DenseDecoder,
    MarginLoss,
    RoutingLayer,
    SelfAttentionRouting,
)
from keras_capsule_poe.plotting import moved_capsule, reconstruction_rows

SHAPE, CLASSES, DIM = (9, 8, 1), 3, 4


def network(decoder=True, **options):
    start = keras.initializers.RandomNormal(stddev=0.5, seed=1)
    primary = keras.Sequential(
        [
            keras.layers.Conv2D(4, 3, activation="relu", kernel_initializer=start),
            ConvCapsules(2, 3, kernel_size=3, kernel_initializer=start),
        ]
    )
    # The plain form has the smaller graph.
    how = {"agreement": "dot", "implementation": "reference"}
    routing = RoutingLayer(CLASSES, DIM, kernel_initializer=start, **how)
    decoder = DenseDecoder(SHAPE, (6,), kernel_initializer=start) if decoder else None
    model = CapsNet(primary, routing, SHAPE, decoder, **options)
    model.build()
    return model


def images(n=4, seed=0, shape=SHAPE):
    return np.random.default_rng(seed).uniform(size=(n, *shape)).astype("float32")


LABELS = np.eye(CLASSES, dtype="float32")[[0, 2, 1, 1]]


def decoded(model, capsules, kept):
    return np.asarray(model.decoder(capsules * kept[..., None]), "float64")


def margin(lengths, labels):
    gaps = labels * np.maximum(0.9 - lengths, 0) ** 2
    return (gaps + 0.5 * (1 - labels) * np.maximum(lengths - 0.1, 0) ** 2).sum(axis=1).mean()


def test_the_loss_is_the_margin_and_the_summed_error_of_the_labels_capsules():
    model, x = network(reconstruction_weight=0.01), images()
    capsules = np.asarray(model(x))
    lengths = np.linalg.norm(capsules, axis=-1)
    assert np.any(lengths.argmax(axis=1) != LABELS.argmax(axis=1)), "the mask would not matter"
    error = ((decoded(model, capsules, LABELS) - x) ** 2).sum(axis=(1, 2, 3)).mean()
    expected = margin(lengths, LABELS) + 0.01 * error
    assert float(model.compute_loss(x, LABELS, model(x))) == pytest.approx(expected, rel=1e-5)
    plain = network(decoder=False, margin=MarginLoss(scaling="official"))
    loss = float(plain.compute_loss(x, LABELS, model(x)))
    assert loss == pytest.approx(margin(lengths, LABELS) / CLASSES / 2, rel=1e-5)


def test_parts_of_an_image_are_decoded_each_on_its_own():
    model, x = network(reconstruction_weight=0.01), images()
    parts = np.stack([LABELS, np.roll(LABELS, 1, axis=1)], axis=1)
    both, targets = parts.sum(axis=1), np.stack([images(seed=1), images(seed=2)], axis=1)
    capsules = np.asarray(model(x))
    errors = [
        ((decoded(model, capsules, parts[:, t]) - targets[:, t]) ** 2).sum(axis=(1, 2, 3)).mean()
        for t in range(2)
    ]
    expected = margin(np.linalg.norm(capsules, axis=-1), both) + 0.01 * sum(errors)
    loss = model.compute_loss(x, (both, targets, parts), model(x))
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_what_it_answers():
    model, x = network(), images()
    capsules = np.asarray(model(x))
    lengths = np.linalg.norm(capsules, axis=-1)
    chosen = lengths.argmax(axis=1)
    found = model.classify(x)
    np.testing.assert_allclose(found["probabilities"], lengths, rtol=1e-5)
    assert np.array_equal(found["classes"], chosen)
    np.testing.assert_array_equal(model.encode(x)["capsules"], capsules)
    alone = decoded(model, capsules, np.eye(CLASSES)[chosen])
    np.testing.assert_allclose(model.reconstruct(x)["images"], alone, rtol=1e-5)
    rows = reconstruction_rows(model, x)
    assert list(rows) == ["original", "longest_capsule"]
    moved = model.traverse(x)
    assert moved["images"].shape == (4, DIM, 11, *SHAPE)
    one = capsules[1] * np.eye(CLASSES)[chosen[1]][:, None]
    one[chosen[1], 2] += 0.15  # -0.25 to 0.25 in steps of 0.05: the ninth
    expected = decoded(model, one[None], np.ones((1, CLASSES)))[0]
    np.testing.assert_allclose(moved["images"][1, 2, 8], expected, rtol=1e-4)
    # The picture of the command line is the same.
    shown, capsule, names = moved_capsule(model, None, x[1:2], span=model.SPAN)
    assert capsule == chosen[1] and names == [f"dimension {k}" for k in range(DIM)]
    np.testing.assert_allclose(np.stack(shown), moved["images"][1], rtol=1e-4)


def test_without_a_decoder_it_only_names():
    model = network(decoder=False)
    assert list(model.ENDPOINTS) == ["classify", "encode"]
    with pytest.raises(ValueError, match="makes no images.*Received: decoder=None"):
        model.reconstruct(images())


def test_it_is_fitted_saved_and_loaded(tmp_path):
    keras.utils.set_random_seed(0)
    model, x = network(), images()
    model.compile(keras.optimizers.Adam(0.05), jit_compile=False)
    first = float(model.compute_loss(x, LABELS, model(x)))
    model.reset_metrics()
    for _ in range(40):
        model.train_on_batch(x, LABELS)
    assert float(model.compute_loss(x, LABELS, model(x))) < 0.5 * first
    assert model.evaluate(x, LABELS, verbose=0, return_dict=True)["accuracy"] == 1
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    np.testing.assert_array_equal(again(x), model(x))
    np.testing.assert_array_equal(again.reconstruct(x)["images"], model.reconstruct(x)["images"])
    assert again.routing.get_config() == model.routing.get_config()
    assert again.margin.get_config() == model.margin.get_config()


def test_with_shared_weights_images_may_have_other_sizes():
    primary = keras.Sequential([keras.layers.Conv2D(5, 3), keras.layers.Reshape((-1, 5))])
    routing = RoutingLayer(CLASSES, DIM, shared_weights=True, logits="replaced")
    model = CapsNet(primary, routing, SHAPE)
    model.build()
    for shape in (SHAPE, (9, 20, 1)):
        assert model.classify(images(shape=shape))["probabilities"].shape == (4, CLASSES)


def test_couplings_against_numpy():
    """Rejects logits in the place of coefficients, and a batch in the place of its images."""
    model, x = network(), images()
    u = np.asarray(model.primary(x), "float64")
    kernel = np.asarray(model.routing.kernel, "float64")
    votes = np.einsum("bid,ijed->bije", u, kernel)
    b = np.zeros((3, *votes.shape[:3]))
    for t in (0, 1):
        z = np.einsum("bij,bije->bje", softmax(b[t], axis=-1), votes)
        n = np.linalg.norm(z, axis=-1, keepdims=True)
        b[t + 1] = b[t] + np.einsum("bije,bje->bij", votes, z * n / (1 + n**2))
    assert model.routing_iterations == 3
    found = model.couplings(x)
    # Float32 sums of some dozen terms of order one, through two softmaxes.
    np.testing.assert_allclose(found, softmax(b, axis=-1).swapaxes(0, 1), rtol=1e-4)
    changes = np.abs(np.diff(b, axis=0)).mean(axis=(2, 3)).T
    assert np.ptp(changes, axis=0).min() > 1e-3
    np.testing.assert_allclose(model.coupling_changes(x), changes, rtol=1e-4)


@pytest.mark.parametrize(
    "routing",
    [RoutingLayer(3, 4, routing_iterations=1), SelfAttentionRouting(3, 4)],
    ids=["none", "one"],
)
def test_without_iterations_there_are_no_couplings(routing):
    primary = keras.Sequential([keras.layers.Conv2D(4, 3), ConvCapsules(2, 3, kernel_size=3)])
    model = CapsNet(primary, routing, SHAPE)
    model.build()
    assert model.routing_iterations == 1
    for ask in (model.couplings, model.coupling_changes):
        with pytest.raises(
            ValueError, match="by routing iterations only. Received: routing_iterations=1"
        ):
            ask(images())


def test_bad_parts_are_refused():
    with pytest.raises(ValueError, match="`primary` must be a Keras layer. Received: primary=3"):
        CapsNet(3, RoutingLayer(2, 3), SHAPE)
