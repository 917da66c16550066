"""`capspoe sample` in its modes: single capsules, all together, and the Markov chain."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

CELL = 2 * (28 + 2)


def run(capspoe, tiny_model, out, *arguments):
    result = capspoe("sample", "--model-dir", tiny_model, "--out", out, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def size(path):
    with Image.open(path) as picture:
        return picture.size


@pytest.mark.some(2)
@pytest.mark.parametrize("start", ["noise", "data"])
def test_chain_picture_has_a_row_a_state_and_a_column_a_chain(capspoe, tiny_model, tmp_path, start):
    out = tmp_path / "chain.png"
    shown = run(capspoe, tiny_model, out, "--mode", "chain", "--start", start, "--plain")
    # Twenty steps in at most eight rows, of twelve chains.
    assert size(out) == (12 * CELL + 4, 8 * CELL + 4)
    assert "0, 3, 6, 9, 12, 15, 18, 20 steps" in shown
    options = ("--n", 5, "--steps", 4, "--every", 2, "--plain")
    run(capspoe, tiny_model, out, "--mode", "chain", "--start", start, *options)
    assert size(out) == (5 * CELL + 4, 3 * CELL + 4)


def test_chain_is_the_old_name_of_meanfield(capspoe, tiny_model, tmp_path):
    out = tmp_path / "chain.npz"
    options = ("--n", 3, "--seed", 1)
    run(capspoe, tiny_model, out, "--mode", "chain", *options, "--steps", 7, "--every", 2)
    old = arrays(out)
    options = (*options, "--burn-in", 2, "--steps", 5, "--thin", 2)
    shown = run(capspoe, tiny_model, out, "--mode", "meanfield", *options)
    new = arrays(out)
    # Not counted from the start, and not without its last state.
    assert "2, 4, 6, 7 steps" in shown and new["step"].tolist() == [2, 4, 6, 7]
    np.testing.assert_array_equal(new["images"], old["images"][1:])


def arrays(path):
    with np.load(path) as stored:
        return dict(stored)


def test_chain_arrays_from_noise(capspoe, tiny_model, tmp_path):
    out = tmp_path / "chain.npz"
    options = ("--mode", "chain", "--n", 3, "--steps", 2)
    run(capspoe, tiny_model, out, *options, "--seed", 1)
    first = arrays(out)
    assert set(first) == {"images", "step"}
    np.testing.assert_array_equal(first["step"], [0, 1, 2])
    assert first["images"].shape == (3, 3, 28, 28, 1)
    assert first["images"].min() >= 0 and first["images"].max() <= 1
    run(capspoe, tiny_model, out, *options, "--seed", 2)
    assert np.abs(arrays(out)["images"][0] - first["images"][0]).max() > 1e-3


def test_chain_from_data_starts_at_the_first_test_images(capspoe, tiny_model, tmp_path):
    from keras_capsule_poe.cli.options import load_model
    from keras_capsule_poe.data import load_images

    out = tmp_path / "chain.npz"
    run(capspoe, tiny_model, out, "--mode", "chain", "--start", "data", "--n", 4, "--steps", 1)
    images = load_images("digits", seed=0).test.head(4).images.astype("float32") / 255
    found, model = arrays(out)["images"], load_model(tiny_model)
    # Graph and eager execution round float32 differently.
    expected = model.reconstructions(images)
    np.testing.assert_allclose(found[0], expected["autoencoder"][0], atol=1e-4)
    np.testing.assert_allclose(found[1], expected["divergence_step"][0], atol=1e-4)


def test_joint_samples_have_all_capsules(capspoe, tiny_model, tmp_path):
    from keras_capsule_poe.cli.options import load_model

    out = tmp_path / "joint.png"
    run(capspoe, tiny_model, out, "--mode", "joint", "--rows", 2, "--plain")
    assert size(out) == (20 * CELL + 4, 2 * CELL + 4)
    out = tmp_path / "joint.npz"
    run(capspoe, tiny_model, out, "--mode", "joint", "--n", 5)
    found = arrays(out)
    assert set(found) == {"images", "capsules"}
    assert found["images"].shape == (5, 28, 28, 1) and found["capsules"].shape == (5, 3, 4)
    assert np.linalg.norm(found["capsules"], axis=-1).min() > 0
    decoded = load_model(tiny_model).decode(found["capsules"])["images"]
    np.testing.assert_allclose(found["images"], decoded, atol=1e-5)
    run(capspoe, tiny_model, out, "--mode", "joint", "--n", 5, "--seed", 1)
    assert np.abs(arrays(out)["capsules"] - found["capsules"]).max() > 1e-3


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "arguments, columns, endpoint",
    [
        ((), 3, "sample"),
        (("--mode", "single"), 3, "sample"),
        (("--mode", "joint"), 20, "sample_joint"),
    ],
)
def test_picture_arrays_and_saved_model_hold_the_same_images(
    capspoe, tiny_model, tmp_path, arguments, columns, endpoint
):
    rows, n = 2, 2 * columns
    picture, npz = tmp_path / "a.png", tmp_path / "a.npz"
    run(capspoe, tiny_model, picture, *arguments, "--seed", 7, "--rows", rows, "--plain")
    run(capspoe, tiny_model, npz, *arguments, "--seed", 7, "--n", n)
    found = arrays(npz)
    model = tf.saved_model.load(str(tiny_model / "1"))
    served = getattr(model, endpoint)(n, 7)
    for name in found:
        # The same float32 operations in batches of another size.
        np.testing.assert_allclose(served[name], found[name], atol=1e-5, err_msg=name)
    order = np.arange(n)
    if "capsule" in found:  # one column a capsule
        blocks = found["capsule"].reshape(rows, columns)
        np.testing.assert_array_equal(np.sort(blocks, axis=1), [range(columns)] * rows)
        order = order.reshape(rows, columns)[np.arange(rows)[:, None], blocks.argsort(axis=1)]
    with Image.open(picture) as stored:
        shown = np.asarray(stored, "float64") / 255
    for place, image in enumerate(found["images"][order.ravel()]):
        # Each pixel of a 28x28 image is two by two, beside a gap as wide as two of them.
        top, left = (4 + CELL * i for i in divmod(place, columns))
        cell = shown[top : top + 56, left : left + 56]
        # Half a grey level, and float32's rounding.
        np.testing.assert_allclose(cell[::2, ::2], image[..., 0], atol=0.5 / 255 + 1e-6)
        np.testing.assert_array_equal(cell[::2, ::2], cell[1::2, 1::2])


@pytest.mark.parametrize(
    "out, arguments, words",
    [
        ("a.png", ["--mode", "chain", "--domain", "prior"], ["--domain", "--mode chain"]),
        ("a.png", ["--mode", "chain", "--rows", "4"], ["--rows", "--mode chain"]),
        (
            "a.png",
            ["--mode", "joint", "--start", "noise"],
            ["--start", "--mode gibbs or meanfield", "joint"],
        ),
        ("a.png", ["--steps", "20"], ["--steps", "--mode gibbs or meanfield", "no --mode"]),
        ("a.png", ["--burn-in", "3"], ["--burn-in", "--mode gibbs or meanfield", "no --mode"]),
        ("a.png", ["--mode", "single", "--every", "2"], ["--every", "--mode gibbs or meanfield"]),
        ("a.png", ["--data-dir", "data"], ["--data-dir", "--mode gibbs or meanfield"]),
        ("a.png", ["--mode", "chain", "--data-dir", "data"], ["--data-dir", "--start data"]),
        ("a.png", ["--mode", "chain", "--steps", "0"], ["--steps", "0"]),
        ("a.png", ["--mode", "chain", "--start", "ashes"], ["--start", "ashes"]),
        ("a.png", ["--n", "7"], ["--n", ".npz", "--rows"]),
        ("a.png", ["--mode", "joint", "--n", "7"], ["--n", ".npz", "--rows"]),
        ("a.npz", ["--rows", "7"], ["--rows", "needs a picture", "--n"]),
    ],
)
def test_options_that_mean_nothing_are_refused(capspoe, tmp_path, out, arguments, words):
    # Before a model is looked for.
    out = tmp_path / out
    result = capspoe("sample", "--model-dir", tmp_path, "--out", out, *arguments)
    assert result.exit_code == 2, result.output
    last = result.output.strip().splitlines()[-1]
    assert all(word in last for word in words), result.output
    assert not out.exists()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--mode", "gibbs"], ["single, joint, meanfield", "gibbs"]),
        (
            ["--domain", "half"],
            ["'prior', 'half_space', 'posterior' in mode 'single'", "half"],
        ),
        (
            ["--mode", "joint", "--domain", "posterior"],
            ["`domain` must be left out: there is none in mode 'joint'.", "posterior"],
        ),
    ],
)
def test_modes_and_domains_that_the_model_does_not_have(
    capspoe, tiny_model, tmp_path, arguments, words
):
    out = tmp_path / "a.png"
    result = capspoe("sample", "--model-dir", tiny_model, "--out", out, *arguments)
    assert result.exit_code == 2, result.output
    last = result.output.strip().splitlines()[-1]
    assert all(word in last for word in words), result.output
    assert not out.exists()
