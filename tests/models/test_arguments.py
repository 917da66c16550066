"""One gate for the numbers of public calls: `n`, `seed`, `capsule`, steps; and for arrays.

Rejected: a fraction, a truth value, text, None or an array that is taken for a number; a seed of
more than 31 bits; a picture of no images.
"""

import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import ImageBoltzmannMachine, RestrictedBoltzmannMachine
from keras_capsule_poe.errors import BadUse

NO_NUMBERS = (1.5, None, "3", True, np.nan, np.inf, [0, 1], (), np.zeros(2), np.float32(2), -1)


@pytest.fixture(scope="module")
def models(small_product):
    machine = RestrictedBoltzmannMachine(3)
    rbm = ImageBoltzmannMachine(machine, (4, 4, 1), persistent_chains=2, burn_in=1)
    rbm.build()
    return small_product(), rbm


def refused(call, *, name):
    with pytest.raises(BadUse, match=f"^`{name}` must be ") as error:
        call()
    assert "Received: " in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0], ids=repr)
def test_a_number_of_images_is_a_positive_integer(models, value):
    product, rbm = models
    for model in models:
        refused(lambda model=model: model.sample(value), name="n")
        refused(lambda model=model: model.draw(value, 0), name="n")
    refused(lambda: product.draw_capsule(0, value, 0), name="n")
    refused(lambda: product.sample_joint(value, 0), name="n")
    if value is not None:
        refused(lambda: product.plot_samples(value), name="n")
        refused(lambda: rbm.plot_filters(value), name="n")
    refused(lambda: rbm.plot_chains(value), name="n")


@pytest.mark.parametrize("value", [*NO_NUMBERS, 2**31, 2**63], ids=repr)
def test_a_seed_is_an_integer_of_31_bits(models, value):
    product, rbm = models
    images = np.zeros((1, 4, 4, 1), "float32")
    for model in models:
        if value is not None:
            refused(lambda model=model: model.sample(2, seed=value), name="seed")
        refused(lambda model=model: model.draw(2, value), name="seed")
        refused(lambda model=model: model.plot_samples(2, seed=value), name="seed")
    refused(lambda: product.plot_capsule(0, seed=value), name="seed")
    refused(lambda: rbm.gibbs(tf.constant(images), 1, value), name="seed")
    refused(lambda: rbm.gibbs_step(tf.constant(images), value), name="seed")


@pytest.mark.parametrize("value", [*NO_NUMBERS, 5, 1.0, "0"], ids=repr)
def test_a_capsule_is_an_index(models, value):
    product, _ = models
    refused(lambda: product.draw_capsule(value, 3, 0), name="capsule")
    refused(lambda: product.plot_capsule(value), name="capsule")
    if value is not None:
        refused(lambda: product.sample(3, capsule=value), name="capsule")
        refused(lambda: product.plot_traversal(value), name="capsule")
        refused(lambda: product.plot_samples(3, capsule=value), name="capsule")


@pytest.mark.parametrize("value", [1.5, "3", True, -1], ids=repr)
def test_steps_and_rows_are_integers(models, value):
    product, rbm = models
    refused(lambda: rbm.plot_chains(2, steps=value), name="steps")
    refused(lambda: rbm.plot_chains(2, burn_in=value), name="burn_in")
    refused(lambda: rbm.plot_chains(2, every=value), name="every")
    refused(lambda: product.plot_traversal(0, steps=value), name="steps")
    refused(lambda: product.plot_traversal(0, dimensions=value), name="dimensions")
    refused(lambda: rbm.gibbs(tf.zeros((1, 4, 4, 1)), value, 0), name="steps")


def test_whole_numbers_of_any_kind_are_taken(models):
    product, _ = models
    expected = product.sample(3, seed=1, capsule=2).images
    for kind in (np.int64, np.int32, np.uint8):
        found = product.sample(kind(3), seed=kind(1), capsule=kind(2)).images
        np.testing.assert_array_equal(found, expected)
    drawn = product.sample(tf.constant(3), tf.constant(1))
    assert drawn["images"].shape == (3, *product.image_shape)


@pytest.mark.parametrize(
    "value", [None, "codes", 3, {"capsules": 1}, [[1.0], [2.0, 3.0]]], ids=repr
)
def test_arrays_are_asked_for(models, value):
    for model in models:
        refused(lambda model=model: model.decode(value), name="capsules")
        if not isinstance(value, (list, str)):
            refused(lambda model=model: model.encode(value), name="images")
            refused(lambda model=model: model.reconstruct(value), name="images")


@pytest.mark.parametrize("n", [2**31 - 1, 2**31, 10**30])
def test_no_more_images_are_drawn_than_fit_into_memory(models, n):
    for model in models:
        refused(lambda model=model: model.sample(n), name="n")
        refused(lambda model=model: model.draw(n, 0), name="n")
        refused(lambda model=model: model.plot_samples(n), name="n")
    with pytest.raises(BadUse, match="of memory"):
        models[1].plot_chains(2**31 - 1)


@pytest.mark.parametrize("word", [5, [1], {}, b"single"], ids=repr)
def test_modes_and_domains_are_words(models, word):
    refused(lambda: models[0].sample(2, mode=word), name="mode")
    refused(lambda: models[0].sample(2, domain=word), name="domain")


@pytest.mark.parametrize("change", [lambda z: z * 1j, lambda z: np.ma.masked_array(z, z == z)])
def test_codes_are_real_numbers(models, change):
    for model in models:
        codes = np.ones((2, model.capsules, model.dim), "float32")
        refused(lambda model=model, codes=codes: model.decode(change(codes)), name="capsules")


def test_a_picture_needs_an_image(models):
    for model in models:
        none = np.zeros((0, *model.image_shape), "float32")
        refused(lambda model=model, none=none: model.plot_reconstructions(none), name="images")
        assert len(model.encode(none).capsules) == 0
        refused(lambda model=model, none=none: model.plot_traversal(image=none), name="image")
    refused(lambda: models[1].plot_chains(images=np.zeros((0, 4, 4, 1))), name="images")


@pytest.mark.parametrize("word, near", [("sngle", "single"), ("join", "joint"), ("xyz", None)])
def test_a_mistyped_mode_is_met_with_the_nearest(models, word, near):
    with pytest.raises(BadUse, match="`mode` must be one of") as error:
        models[0].sample(2, mode=word)
    assert (f"Did you mean `{near}`?" in str(error.value)) == (near is not None)
