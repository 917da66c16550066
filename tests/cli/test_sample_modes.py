"""`capspoe sample` in its modes: single capsules, all together, and the Markov chain."""

import numpy as np
import pytest
from PIL import Image

CELL = 2 * (28 + 2)


def run(capspoe, tiny_model, out, *arguments):
    result = capspoe("sample", "--model-dir", tiny_model, "--out", out, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def size(path):
    with Image.open(path) as picture:
        return picture.size


@pytest.mark.parametrize("start", ["noise", "data"])
def test_chain_picture_has_a_row_a_state_and_a_column_a_chain(capspoe, tiny_model, tmp_path, start):
    out = tmp_path / "chain.png"
    shown = run(capspoe, tiny_model, out, "--mode", "chain", "--start", start)
    # Twenty steps in at most eight rows, of twelve chains.
    assert size(out) == (12 * CELL + 4, 8 * CELL + 4)
    assert "0, 3, 6, 9, 12, 15, 18, 20 steps" in shown
    options = ("--n", 5, "--steps", 4, "--every", 2)
    run(capspoe, tiny_model, out, "--mode", "chain", "--start", start, *options)
    assert size(out) == (5 * CELL + 4, 3 * CELL + 4)


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
    from keras_capsule_poe.cli.models import load_model
    from keras_capsule_poe.data import load_images

    out = tmp_path / "chain.npz"
    run(capspoe, tiny_model, out, "--mode", "chain", "--start", "data", "--n", 4, "--steps", 1)
    images = load_images("digits", seed=0).test.head(4).images.astype("float32") / 255
    found, model = arrays(out)["images"], load_model(tiny_model)
    # Graph and eager execution round float32 differently.
    np.testing.assert_allclose(found[0], model.autoencoder(images), atol=1e-4)
    np.testing.assert_allclose(found[1], model.gibbs_step(images), atol=1e-4)


def test_joint_samples_have_all_capsules(capspoe, tiny_model, tmp_path):
    from keras_capsule_poe.cli.models import load_model

    out = tmp_path / "joint.png"
    run(capspoe, tiny_model, out, "--mode", "joint", "--rows", 2)
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


@pytest.mark.parametrize(
    "mode, arguments, words",
    [
        ("chain", ["--domain", "complete"], ["--domain", "--mode single", "--mode chain"]),
        ("chain", ["--rows", "4"], ["--rows", "--mode single or joint"]),
        ("joint", ["--domain", "visited"], ["--domain", "--mode single"]),
        ("joint", ["--start", "noise"], ["--start", "--mode chain"]),
        ("single", ["--steps", "20"], ["--steps", "--mode chain", "--mode single"]),
        ("single", ["--every", "2"], ["--every", "--mode chain"]),
        ("single", ["--data-dir", "data"], ["--data-dir", "--mode chain"]),
        ("chain", ["--data-dir", "data"], ["--data-dir", "--start data"]),
        ("chain", ["--steps", "0"], ["--steps", "0"]),
        ("chain", ["--start", "ashes"], ["--start", "ashes"]),
        ("gibbs", [], ["--mode", "gibbs"]),
    ],
)
def test_options_of_another_mode_are_refused(capspoe, tmp_path, mode, arguments, words):
    # Before a model is looked for.
    out = tmp_path / "a.png"
    result = capspoe("sample", "--model-dir", tmp_path, "--out", out, "--mode", mode, *arguments)
    assert result.exit_code == 2, result.output
    last = result.output.strip().splitlines()[-1]
    assert all(word in last for word in words), result.output
    assert not out.exists()
