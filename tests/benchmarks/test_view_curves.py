"""Variants of a comparison are compared where they are equally good, and without a test image."""

import numpy as np
import view_curves

from keras_capsule_poe.data import ImageData, ImageSet


def test_the_first_epoch_that_is_good_enough_counts(tmp_path, monkeypatch, capsys):
    curve = [{"familiar": f, "novel": n} for f, n in ((0.09, 0.3), (0.04, 0.21), (0.01, 0.1))]
    asked = []

    def measured(*args):
        asked.append(args)
        return {"parameters": 1234, "curve": curve}

    monkeypatch.setattr(view_curves, "curve", measured)
    options = [str(tmp_path), "--variants", "cnn", "--split", "azimuth"]
    view_curves.main(options)
    assert "| cnn | azimuth | 0 | 1,234 | 2 | 4.00 | 21.00 |" in capsys.readouterr().out
    view_curves.main([*options, "--table"])
    assert "| 21.00 |" in capsys.readouterr().out and len(asked) == 1
    # What was stopped at another share says nothing of this one.
    view_curves.main([*options, "--until", "0.999"])
    assert len(asked) == 2
    assert "| cnn | azimuth | 0 | 1,234 | - | - | - |" in capsys.readouterr().out


def test_held_out_are_all_views_of_one_solid_of_each_kind(monkeypatch):
    instance, elevation = (grid.ravel() for grid in np.mgrid[5:10, 0:9])
    extras = {"instance": instance, "label_elevation": elevation}
    views = ImageSet(np.zeros((45, 8, 8, 2), np.uint8), extras=extras)
    monkeypatch.setattr(view_curves, "load_images", lambda name: ImageData(views, views))
    train, held = view_curves.load("elevation", solid=1)
    for images, wanted in ((held["familiar"], True), (held["novel"], False)):
        assert set(images.extras["instance"]) == {6}
        assert np.all((images.extras["label_elevation"] < 3) == wanted)
    assert set(train.extras["instance"]) == {5, 7, 8, 9}
    assert train.extras["label_elevation"].max() == 2
