"""Commands that draw pictures: `sample` in its modes, `reconstruct`, `segment` and `traverse`."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_capsule_poe.cli.options import load_model
from keras_capsule_poe.data import load_images

# Two pixels for each of an image and of the gap beside it; and the gap on the other side.
CELL, EDGE = 2 * (28 + 2), 4


def size(path):
    with Image.open(path) as picture:
        return picture.size


def arrays(path):
    with np.load(path) as stored:
        return dict(stored)


@pytest.fixture
def drawn(asked, tiny_model, tmp_path):
    """Samples into a file of some kind; returns its arrays or its size, and what is shown."""

    def drawn(kind, *arguments):
        out = tmp_path / f"a.{kind}"
        shown = asked("sample", "--model-dir", tiny_model, "--out", out, *arguments)
        return (arrays if kind == "npz" else size)(out), shown

    return drawn


@pytest.mark.parametrize("domain", ["prior", "half_space", "posterior"])
def test_single_samples_are_of_one_capsule(drawn, domain):
    found, _ = drawn("npz", "--n", 5, "--domain", domain, "--seed", 3)
    images, codes = found["images"], found["capsules"]
    assert images.shape == (5, 28, 28, 1) and codes.shape == (5, 3, 4)
    assert images.min() >= 0 and images.max() <= 1
    lengths = np.linalg.norm(codes, axis=-1)
    np.testing.assert_array_equal(lengths.argmax(axis=1), found["capsule"])
    np.testing.assert_array_equal((lengths > 0).sum(axis=1), 1)
    other, _ = drawn("npz", "--n", 5, "--domain", domain, "--seed", 4)
    assert np.abs(other["images"] - images).max() > 0


def test_samples_of_one_capsule(drawn, asked, tiny_model, tmp_path):
    assert drawn("npz", "--n", 6, "--capsule", 2)[0]["capsule"].tolist() == [2] * 6
    options = ("--out", tmp_path / "b.npz", "--capsule", 3)
    assert "capsule" in asked("sample", "--model-dir", tiny_model, *options, code=2)


def test_a_grid_has_a_column_for_each_capsule(drawn):
    for rows in (1, 3):
        found, _ = drawn("png", "--rows", rows, "--plain")
        assert found == (3 * CELL + EDGE, rows * CELL + EDGE)


def test_joint_samples_have_all_capsules(drawn, tiny_model):
    found, _ = drawn("png", "--mode", "joint", "--rows", 2, "--plain")
    assert found == (20 * CELL + EDGE, 2 * CELL + EDGE)
    found, _ = drawn("npz", "--mode", "joint", "--n", 5)
    assert set(found) == {"images", "capsules", "shared"}
    assert found["images"].shape == (5, 28, 28, 1) and found["capsules"].shape == (5, 3, 4)
    assert np.linalg.norm(found["capsules"], axis=-1).min() > 0
    decoded = load_model(tiny_model).decode(found)["images"]
    np.testing.assert_allclose(found["images"], decoded, atol=1e-5)
    other, _ = drawn("npz", "--mode", "joint", "--n", 5, "--seed", 1)
    assert np.abs(other["capsules"] - found["capsules"]).max() > 1e-3


@pytest.mark.some(2)
@pytest.mark.parametrize("start", ["noise", "data"])
def test_chain_picture_has_a_row_a_state_and_a_column_a_chain(drawn, start):
    chain = ("--mode", "chain", "--start", start, "--plain")
    found, shown = drawn("png", *chain)
    # Twenty steps in at most eight rows, of twelve chains.
    assert found == (12 * CELL + EDGE, 8 * CELL + EDGE)
    assert "0, 3, 6, 9, 12, 15, 18, 20 steps" in shown
    found, _ = drawn("png", *chain, "--n", 5, "--steps", 4, "--every", 2)
    assert found == (5 * CELL + EDGE, 3 * CELL + EDGE)


def test_chain_is_the_old_name_of_meanfield(drawn):
    options = ("--n", 3, "--seed", 1)
    old, _ = drawn("npz", "--mode", "chain", *options, "--steps", 7, "--every", 2)
    options = (*options, "--burn-in", 2, "--steps", 5, "--thin", 2)
    new, shown = drawn("npz", "--mode", "meanfield", *options)
    # Not counted from the start, and not without its last state.
    assert "2, 4, 6, 7 steps" in shown and new["step"].tolist() == [2, 4, 6, 7]
    np.testing.assert_array_equal(new["images"], old["images"][1:])


def test_chain_arrays_from_noise(drawn):
    options = ("--mode", "chain", "--n", 3, "--steps", 2)
    first, _ = drawn("npz", *options, "--seed", 1)
    assert set(first) == {"images", "step"}
    np.testing.assert_array_equal(first["step"], [0, 1, 2])
    assert first["images"].shape == (3, 3, 28, 28, 1)
    assert first["images"].min() >= 0 and first["images"].max() <= 1
    other, _ = drawn("npz", *options, "--seed", 2)
    assert np.abs(other["images"][0] - first["images"][0]).max() > 1e-3


def test_chain_from_data_starts_at_the_first_test_images(drawn, tiny_model):
    found, _ = drawn("npz", "--mode", "chain", "--start", "data", "--n", 4, "--steps", 1)
    images = load_images("digits", seed=0).test.head(4).images.astype("float32") / 255
    # Graph and eager execution round float32 differently.
    expected = load_model(tiny_model).reconstructions(images)
    np.testing.assert_allclose(found["images"][0], expected["autoencoder"][0], atol=1e-4)
    np.testing.assert_allclose(found["images"][1], expected["divergence_step"][0], atol=1e-4)


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
    drawn, tiny_model, tmp_path, arguments, columns, endpoint
):
    rows, n = 2, 2 * columns
    drawn("png", *arguments, "--seed", 7, "--rows", rows, "--plain")
    found, _ = drawn("npz", *arguments, "--seed", 7, "--n", n)
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
    with Image.open(tmp_path / "a.png") as stored:
        shown = np.asarray(stored, "float64") / 255
    for place, image in enumerate(found["images"][order.ravel()]):
        # Each pixel of a 28x28 image is two by two, beside a gap as wide as two of them.
        top, left = (EDGE + CELL * i for i in divmod(place, columns))
        cell = shown[top : top + 56, left : left + 56]
        # Half a grey level, and float32's rounding.
        np.testing.assert_allclose(cell[::2, ::2], image[..., 0], atol=0.5 / 255 + 1e-6)
        np.testing.assert_array_equal(cell[::2, ::2], cell[1::2, 1::2])


def test_options_without_effect_are_refused_before_a_model_is_looked_for(asked, tmp_path):
    no_chain = "--mode gibbs or meanfield"
    for out, arguments, words in (
        ("a.png", ["--mode", "chain", "--domain", "prior"], ["--domain", "--mode chain"]),
        ("a.png", ["--mode", "chain", "--rows", "4"], ["--rows", "--mode chain"]),
        ("a.png", ["--mode", "joint", "--start", "noise"], ["--start", no_chain, "joint"]),
        ("a.png", ["--steps", "20"], ["--steps", no_chain, "no --mode"]),
        ("a.png", ["--burn-in", "3"], ["--burn-in", no_chain, "no --mode"]),
        ("a.png", ["--mode", "single", "--every", "2"], ["--every", no_chain]),
        ("a.png", ["--data-dir", "data"], ["--data-dir", no_chain]),
        ("a.png", ["--mode", "chain", "--data-dir", "data"], ["--data-dir", "--start data"]),
        ("a.png", ["--mode", "chain", "--steps", "0"], ["--steps", "0"]),
        ("a.png", ["--mode", "chain", "--start", "ashes"], ["--start", "ashes"]),
        ("a.png", ["--n", "7"], ["--n", ".npz", "--rows"]),
        ("a.png", ["--mode", "joint", "--n", "7"], ["--n", ".npz", "--rows"]),
        ("a.npz", ["--rows", "7"], ["--rows", "needs a picture", "--n"]),
    ):
        options = ("--model-dir", tmp_path, "--out", tmp_path / out, *arguments)
        asked("sample", *options, code=2, last=words)
    assert not list(tmp_path.iterdir())


def test_modes_and_domains_that_the_model_does_not_have(asked, tiny_model, tmp_path):
    none = "`domain` must be left out: there is none in mode 'joint'."
    for arguments, words in (
        (["--mode", "gibbs"], ["single, joint, meanfield", "gibbs"]),
        (["--domain", "half"], ["'prior', 'half_space', 'posterior' in mode 'single'", "half"]),
        (["--mode", "joint", "--domain", "posterior"], [none, "posterior"]),
    ):
        out = ("--out", tmp_path / "a.png")
        asked("sample", "--model-dir", tiny_model, *out, *arguments, code=2, last=words)
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize("kind", ["pdf", "svg"])
def test_vector_files_have_labels(asked, tiny_model, tmp_path, kind):
    out = tmp_path / f"a.{kind}"
    sample = ("sample", "--model-dir", tiny_model, "--out", out)
    asked(*sample, "--theme", "dark", "--cell", 0.3)
    assert out.stat().st_size > 1000
    asked(*sample, "--width", 3, "--no-title")
    asked(*sample, "--width", 3, "--cell", 1, code=2, last="exclude each other")
    assert "--plain needs .png" in asked(*sample, "--plain", code=2)


def test_reconstruct_and_traverse_draw_grids(asked, tiny_model, tmp_path):
    for command, cells in (
        (("reconstruct", "--n", 6), (6, 6)),
        (("traverse", "--capsule", 1, "--steps", 5, "--rows", 4), (5, 4)),
    ):
        out = tmp_path / f"{command[0]}.png"
        asked(*command, "--model-dir", tiny_model, "--out", out, "--plain")
        assert size(out) == tuple(n * CELL + EDGE for n in cells)


def test_traverse_refuses_what_is_not_there(asked, tiny_model, tmp_path):
    traverse = ("traverse", "--model-dir", tiny_model)
    asked(*traverse, "--capsule", 3, code=2, last="3 capsules")
    asked(*traverse, "--image", 10**6, code=2, last="297")
    # Before anything of that size is made: it would end the process.
    for chosen in (("--capsule", 1), ("--image", 0)):
        asked(*traverse, *chosen, "--steps", 10**9, code=2, last="would be too large")
    # Spans that leave every code at the edge.
    for span in ("nan", "inf", "-inf", "1e308", "2.1", "0", "-1"):
        words = "at most 2, since capsules are shorter than 1"
        asked("traverse", "--span", span, "--model-dir", tmp_path, code=2, last=words)


def test_a_capsule_that_is_off_is_refused_with_images_on_which_it_is_on(
    asked, tiny_model, tmp_path, monkeypatch
):
    # All capsules of so short a training are a little on.
    monkeypatch.setattr("keras_capsule_poe.figures.ACTIVE", 2.0)
    out = tmp_path / "a.png"
    traverse = ("traverse", "--model-dir", tiny_model, "--out", out, "--capsule", 1)
    shown = asked(*traverse, "--image", 0, code=2)
    assert "not active on test image 0" in shown and "without --image" in shown
    assert not out.exists()
    assert "Capsule 1 alone" in asked(*traverse)


def test_only_classifiers_pull_things_apart(asked, tiny_model):
    words = "names and decodes no images"
    asked("segment", "--model-dir", tiny_model, code=1, last=words)
