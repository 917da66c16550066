"""Labelled figures of models.

Rejected: images that are not the model's; cells of another size than asked; a column under another
capsule's label; changed settings of matplotlib.
"""

import matplotlib
import numpy as np
import pytest
from PIL import Image

import keras_capsule_poe as kcp
from keras_capsule_poe.directions import DRAWS
from keras_capsule_poe.errors import BadUse, DataError
from keras_capsule_poe.figures import THEMES, image_figure, save_figure
from keras_capsule_poe.plotting import moved_capsule

SHAPE = (20, 22, 1)


@pytest.fixture(scope="module")
def model(small_product):
    return small_product(SHAPE)


@pytest.fixture(scope="module")
def machine():
    machine = kcp.RestrictedBoltzmannMachine(6)
    model = kcp.ImageBoltzmannMachine(machine, (4, 4, 1), persistent_chains=3, burn_in=2)
    model.build()
    return model


def images(n):
    return np.random.default_rng(0).integers(256, size=(n, *SHAPE)).astype("uint8")


def labels(axes):
    return [
        [tick.get_text() for tick in each.get_ticklabels()] for each in (axes.xaxis, axes.yaxis)
    ]


def shown(axes):
    """Pixels of each image of a panel, in the order of drawing, one channel."""
    return [np.asarray(image.get_array())[..., :1] for image in axes.get_images()]


def test_samples_have_a_column_per_capsule(model):
    figure = model.plot_samples(10, seed=3)
    (axes,) = figure.axes
    found = model.sample(10, seed=3)
    assert labels(axes) == [[str(j) for j in range(model.capsules)], []]
    # Drawn row by row: the first row has the first sample of each capsule.
    first = [found.images[found.index == j][0] for j in range(model.capsules)]
    np.testing.assert_allclose(shown(axes)[: model.capsules], np.clip(first, 0, 1), atol=1e-6)
    assert "one column per capsule" in figure.texts[0].get_text()


def test_columns_that_are_too_many_go_below(model):
    whole, narrow = (model.plot_samples(10, seed=3, columns=most) for most in (None, 3))
    (one,), (first, second) = whole.axes, narrow.axes
    assert [labels(each)[0] for each in narrow.axes] == [["0", "1", "2"], ["3", "4"]]
    assert narrow.get_size_inches()[0] <= whole.get_size_inches()[0]
    top, bottom = (each.get_position() for each in (first, second))
    assert top.y0 > bottom.y1 and top.x0 == pytest.approx(bottom.x0)
    # Each image keeps its column, and its size.
    rows = np.reshape(shown(one), (2, 5, -1))
    np.testing.assert_array_equal(np.reshape(shown(second), (2, 2, -1)), rows[:, 3:])
    assert top.width / 3 == pytest.approx(bottom.width / 2, rel=0.05)
    with pytest.raises(BadUse, match="`columns` must be"):
        model.plot_samples(10, columns=0)


def test_each_cell_is_as_large_as_asked(model):
    for cell in (0.3, 1.0):
        figure = model.plot_reconstructions(images(3), cell=cell)
        (axes,) = figure.axes
        left, right, bottom, top = axes.get_images()[0].get_extent()
        width, height = figure.get_size_inches() * axes.get_position().size
        assert width * (right - left) / np.ptp(axes.get_xlim()) == pytest.approx(cell)
        ratio = height * (bottom - top) / np.ptp(axes.get_ylim()) / cell
        assert ratio == pytest.approx(SHAPE[0] / SHAPE[1])


def test_reconstructions_are_under_their_originals(model):
    x = images(3)
    (axes,) = model.plot_reconstructions(x).axes
    columns, rows = labels(axes)
    assert columns == ["0", "1", "2"] and rows[0] == "original" and "whole code" in rows
    np.testing.assert_allclose(shown(axes)[:3], x / 255, atol=1e-6)
    whole = 3 * rows.index("whole code")
    np.testing.assert_allclose(
        shown(axes)[whole : whole + 3], np.clip(model.reconstruct(x).images, 0, 1), atol=1e-5
    )


def test_a_traversal_of_an_image(model):
    x = images(1)
    capsule = int(model.encode(x).winners[0])
    (axes,) = model.plot_traversal(image=x[0], steps=5, dimensions=2, span=0.4).axes
    columns, rows = labels(axes)
    assert columns == ["-0.4", "-0.2", "+0", "+0.2", "+0.4"]
    assert len(rows) == 2 and rows == moved_capsule(model, capsule, x, 2)[2]
    # The middle column is the image's own reconstruction.
    np.testing.assert_allclose(
        shown(axes)[2], np.clip(model.reconstruct(x).images[0], 0, 1), atol=1e-5
    )
    assert f"Capsule {capsule} of an image" in axes.figure.texts[0].get_text()


def test_a_capsule_that_is_off_is_refused_with_those_that_are_on(model, monkeypatch):
    found = model.encode(images(1))
    p = np.array([[0.02, 0.9, 0.3, 0.01, 0.0]], "float32")
    codes = type(found)(found.capsules, p, found.free_energy)
    monkeypatch.setattr(type(model), "encode", lambda self, images: codes)
    said = r"capsule=3, whose probability is 0.01. The most probable capsules are 1 \(0.90\), 2"
    with pytest.raises(BadUse, match=said):
        model.plot_traversal(3, images(1)[0])


def test_a_capsule_has_samples_and_traversals(model):
    figure = model.plot_capsule(2)
    headings = [text.get_text() for text in figure.texts]
    assert headings[0] == "Capsule 2" and "samples, domain prior" in headings
    prior = model.sample(18, 0, None, "prior", 2).images
    np.testing.assert_allclose(shown(figure.axes[0]), np.clip(prior, 0, 1), atol=1e-6)
    assert labels(figure.axes[-1])[1] == moved_capsule(model, 2, rows=6)[2]


def test_a_machine_has_samples_and_traversals_of_its_one_capsule(machine):
    assert len(machine.plot_samples(7).axes[0].get_images()) == 7
    assert len(machine.plot_traversal(steps=3).axes[0].get_images()) == 6 * 3
    with pytest.raises(BadUse, match="`capsule` must be None in mode 'joint'"):
        machine.plot_samples(3, capsule=0)


def test_themes_and_files(model, tmp_path):
    before = dict(matplotlib.rcParams)
    for theme, (paper, _) in THEMES.items():
        figure = model.plot_samples(5, theme=theme)
        assert matplotlib.colors.to_hex(figure.get_facecolor()) == paper
    names = "a.pdf", "a.svg", "a.png", "a.jpg"
    for name in names:
        save_figure(tmp_path / name, figure, SHAPE[1])
        assert (tmp_path / name).stat().st_size > 1000
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    figure.savefig(tmp_path / "b.svg")
    assert dict(matplotlib.rcParams) == before


def test_a_figure_fits_a_column_of_a_paper(model):
    figure = model.plot_reconstructions(images(3), width=2.5)
    (axes,) = figure.axes
    assert figure.get_figwidth() == 2.5
    assert axes.get_position().x1 * 2.5 == pytest.approx(2.5 - 0.12)  # the margin
    # The title takes two lines, which fit.
    figure.draw_without_rendering()
    title = figure.texts[0].get_window_extent()
    assert "\n" in figure.texts[0].get_text() and title.x1 <= 2.5 * figure.dpi
    assert title.y0 > axes.get_window_extent().y1
    assert not model.plot_reconstructions(images(3), title=False).texts


def test_a_figure_is_drawn_in_axes_of_another():
    figure = matplotlib.figure.Figure(figsize=(6, 3))
    left, right = figure.subplots(1, 2)
    right.plot([1, 2])
    rows = np.random.default_rng(0).uniform(size=(2, 3, 4, 5, 1))
    found = image_figure([(rows, ["a", "b"], None, "heading")], "Title", ax=left)
    assert found is figure and len(figure.axes) == 2
    (panel,) = left.child_axes
    assert [text.get_text() for text in left.texts] == ["Title", "heading"]
    np.testing.assert_allclose(shown(panel)[4], rows[1, 1])
    figure.draw_without_rendering()
    around = left.get_window_extent()
    drawn = panel.get_window_extent()
    assert around.x0 < drawn.x0 < drawn.x1 < around.x1 < right.get_window_extent().x0
    # Pixels are squares: four rows of five, two images high and three wide, with gaps.
    gaps = (2 + 0.06) * 4 / ((3 + 2 * 0.06) * 5)
    assert drawn.height / drawn.width == pytest.approx(gaps, rel=0.02)


def test_letters_of_vector_files_are_letters(model, tmp_path):
    """Rejects fonts of Type 3, which journals refuse, and outlines, which no one can search."""
    figure = model.plot_samples(5)
    for save in (save_figure, lambda path, figure: figure.savefig(path)):
        save(tmp_path / "a.pdf", figure)
        save(tmp_path / "a.svg", figure)
        content = (tmp_path / "a.pdf").read_bytes()
        assert b"/FontFile2" in content and b"/Type3" not in content
        assert ">Samples of single capsules" in (tmp_path / "a.svg").read_text()


def test_a_notebook_shows_figures_and_models(model):
    png = b"\x89PNG"
    assert model.plot_samples(5)._repr_png_().startswith(png)
    assert model._repr_png_().startswith(png)
    assert kcp.ProductOfExpertCapsules()._repr_png_() is None


def test_colours_stay():
    pixels = np.random.default_rng(0).uniform(size=(4, 5, 3))
    figure = image_figure([([[pixels]], None, None, None)])
    np.testing.assert_allclose(figure.axes[0].get_images()[0].get_array(), pixels)


def test_bad_arguments_are_named(model):
    cases = [
        ({"cell": 0}, "`cell` must be from 0.05 to 20 inches. Received: cell=0"),
        ({"theme": "blue"}, "`theme` must be 'light' or 'dark'. Received: theme='blue'"),
        ({"capsule": 9}, "`capsule` must be an index of 5 capsules"),
        ({"mode": "odd"}, "`mode` must be one of"),
        ({"n": -1}, "`n` must be a positive integer"),
    ]
    for options, words in cases:
        with pytest.raises(ValueError, match=words):
            model.plot_samples(**options)
    with pytest.raises(BadUse, match="`cell` must be left out with `width`"):
        model.plot_samples(5, cell=1, width=3)
    with pytest.raises(BadUse, match="`width` must leave images of 0.05 to 20.*which leaves 0"):
        model.plot_samples(5, width=0.1)
    with pytest.raises(
        TypeError, match="takes cell, width, columns, theme, title, ax. Received: size=3"
    ):
        model.plot_samples(5, size=3)
    with pytest.raises(DataError, match=r"must have shape \(N, 20, 22, 1\)"):
        model.plot_reconstructions(images(2)[:, :5])
    with pytest.raises(BadUse, match="`steps` must be an integer of at least 2"):
        model.plot_traversal(1, steps=1)


def test_a_filter_is_the_image_with_the_neuron_on_less_the_image_with_it_off(machine):
    """Rejects another order of neurons, a filter of another one, and scales of their own."""
    kernel = np.random.default_rng(1).normal(size=(6, 16)).astype("float32")
    machine.machine.kernel.assign(kernel.reshape(machine.machine.kernel.shape))
    figure = machine.plot_filters()
    code = machine.sample(DRAWS, 0).capsules.mean(axis=0)
    effects = []
    for e in range(6):
        on, off = np.array(code), np.array(code)
        on[0, e], off[0, e] = 1, 0
        pair = machine.decode(np.stack([on, off])).images.astype("float64")
        effects.append(pair[0] - pair[1])
    size = np.abs(effects).max(axis=(1, 2, 3))
    (axes,) = figure.axes
    order = [int(name) for name in labels(axes)[0]]
    assert order == np.argsort(-size, kind="stable").tolist()
    for picture, e in zip(shown(axes), order):
        np.testing.assert_allclose(picture, 0.5 + effects[e] / (2 * size.max()), atol=1e-5)


def test_filters_need_neurons(model):
    with pytest.raises(BadUse, match="model of neurons"):
        model.plot_filters()


def test_chains_have_a_row_per_state(machine):
    figure = machine.plot_chains(3, steps=4, every=2, seed=1)
    (axes,) = figure.axes
    assert labels(axes) == [["0", "1", "2"], ["step 0", "step 2", "step 4"]]
    assert len(shown(axes)) == 9


def test_images_are_magnified_by_whole_numbers(model, tmp_path):
    """Rejects pixels of different widths."""
    path = tmp_path / "a.png"
    figure = image_figure([(np.array([[np.eye(20)[..., None]]]), None, None, None)], cell=0.9)
    save_figure(path, figure, 20)
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("L")).astype(int)
    # The diagonal is a stair of squares of one size.
    runs = [np.count_nonzero(row == 255) for row in pixels if (row == 0).any()]
    inside = [np.diff(np.flatnonzero(np.diff(np.r_[0, row == 255, 0]))) for row in pixels]
    assert len(set(runs)) <= 3 and inside


def test_a_figure_that_is_too_large_is_refused(model, tmp_path):
    figure = image_figure([(np.zeros((1, 1, 4, 4, 1)), None, None, None)], cell=20)
    figure.set_size_inches(10_000, 1)
    with pytest.raises(BadUse, match="too large"):
        save_figure(tmp_path / "a.png", figure)
    assert not list(tmp_path.iterdir())
