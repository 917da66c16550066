"""Groups of images, such as those of one patient, stay in one part of the data.

Rejected: images of one group for training and for testing; a class without test images; groups
that are dropped without a line.
"""

import numpy as np
import pytest
from PIL import Image

from keras_capsule_poe.data import DataError, load_images
from keras_capsule_poe.data.arrays import image_data
from keras_capsule_poe.data.groups import draw_groups

PATIENTS, VIEWS = 6, 3


def images_of(n):
    return np.random.default_rng(0).integers(0, 256, (n, 8, 8), dtype="uint8")


def fill(root, path):
    """Write images of two classes; `path` gives the file of a class, a patient and a view."""
    images = iter(images_of(2 * PATIENTS * VIEWS))
    for name in ("cat", "dog"):
        for patient in range(PATIENTS):
            for view in range(VIEWS):
                file = root / name / path.format(name[0], patient, view)
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(next(images)).save(file)
    return root


def check_apart(data, size=VIEWS, count=2 * PATIENTS):
    """No group is in two parts, and none has lost images."""
    parts = [part.extras["groups"] for part in (data.train, data.held_out, data.test)]
    groups, counts = np.unique(np.concatenate(parts), return_counts=True)
    assert counts.tolist() == [size] * count
    assert sum(len(np.unique(part)) for part in parts) == len(groups)


@pytest.mark.parametrize(
    "path, groups",
    [
        ("{0}{1}/{2}.png", "folder"),
        ("{0}{1}/left/{2}.png", "folder"),
        ("case-{0}{1}_{2}.png", "case-[a-z]+[0-9]+"),
        ("case-{0}{1}_{2}.png", "(case-.*)_"),
        ("{2}/{0}{1}.png", "([a-z][0-9]).png$"),
    ],
)
def test_groups_of_files_are_not_separated(tmp_path, path, groups):
    data = load_images(fill(tmp_path, path), groups=groups).hold_out()
    check_apart(data)
    assert [set(part.labels) for part in (data.train, data.test)] == [{0, 1}, {0, 1}]
    assert data.group_counts() == "groups of training/held-out/test images: 8/2/2"
    assert not any("groups" in note for note in data.notes)
    # Other seeds draw other groups.
    other = load_images(tmp_path, groups=groups, seed=1).hold_out()
    check_apart(other)
    assert other.test.fingerprint != data.test.fingerprint


def test_sub_folders_of_classes_are_pointed_out(tmp_path):
    fill(tmp_path / "nested", "{0}{1}/{2}.png")
    (note,) = load_images(tmp_path / "nested").notes
    assert "sub-folders, such as " in note and "cat/c0. " in note and 'groups="folder"' in note
    assert not load_images(fill(tmp_path / "flat", "{0}{1}-{2}.png")).notes


def test_equal_groups_of_two_classes_are_one(tmp_path):
    fill(tmp_path, "{1}/{2}.png")
    with pytest.raises(DataError, match="they may be splits of the images or classes"):
        load_images(tmp_path)
    check_apart(load_images(tmp_path, groups="folder").hold_out(), 2 * VIEWS, PATIENTS)


def test_groups_of_given_splits_are_checked(tmp_path):
    fill(tmp_path / "train", "case-{1}_{2}.png")
    fill(tmp_path / "test", "case-{1}_{2}.png")
    with pytest.raises(DataError, match="6 in both .* images, case-0, case-1, case-2"):
        load_images(tmp_path, groups="case-[0-9]")


@pytest.mark.parametrize(
    "groups, words",
    [
        ("case-[5-9]", "every image. Received: .* which does not match 30 of 36 paths, cat/case-0"),
        ("(", "a regular expression of paths"),
        ("", "`groups` must be a word or a regular expression"),
        ("cat|dog|^", None),
        ("png", "at least 2 groups.*Received: 36 images of 1"),
    ],
)
def test_groups_that_cannot_be_used(tmp_path, groups, words):
    fill(tmp_path, "case-{1}_{2}.png")
    if words is None:
        assert len(np.unique(load_images(tmp_path, groups=groups).train.extras["groups"])) == 1
        return
    with pytest.raises(DataError, match=words):
        load_images(tmp_path, groups=groups)


@pytest.mark.parametrize("kind", [int, str])
def test_groups_of_archives_and_arrays(tmp_path, kind):
    groups = np.repeat(np.arange(12) * 10, VIEWS).astype(kind)
    images, labels = images_of(36), np.repeat([0, 1], 18)
    arrays = {"images": images, "labels": labels, "groups": groups}
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez(tmp_path / "b.npz", images=images, labels=labels, patients=groups)
    for data in (
        load_images(tmp_path / "a.npz"),
        load_images(tmp_path / "b.npz", groups="patients"),
    ):
        check_apart(data.hold_out())
    data = image_data(images, labels, groups=groups, validation_split=0.3)
    both = np.concatenate([data.train.extras["groups"], data.held_out.extras["groups"]])
    assert len(np.intersect1d(data.train.extras["groups"], data.held_out.extras["groups"])) == 0
    assert np.unique(both, return_counts=True)[1].tolist() == [VIEWS] * 12
    assert np.bincount(data.held_out.labels).tolist() == [6, 6]
    with pytest.raises(DataError, match="no array 'people'; `groups` must name"):
        load_images(tmp_path / "a.npz", groups="people")
    with pytest.raises(DataError, match=r"`groups` must be .*\(36,\).*Received: shape \(35,\)"):
        image_data(images, groups=groups[:-1])
    given = {"x_train": images, "x_test": images[:6], "groups_train": groups}
    np.savez(tmp_path / "c.npz", **given, groups_test=groups[:6])
    with pytest.raises(DataError, match="2 in both training and test images, 0, 10"):
        load_images(tmp_path / "c.npz")


def test_sources_without_groups_refuse_them():
    for name in ("digits", "digits_multi"):
        with pytest.raises(DataError, match="`groups` has no meaning"):
            load_images(name, groups="folder")


def test_whole_groups_are_drawn_in_the_shares_of_classes():
    """One group a class stays for training, large groups do not spoil the shares."""
    random = np.random.default_rng(0)
    for seed in range(20):
        groups = np.repeat(np.arange(40), random.integers(1, 9, 40))
        classes = (np.arange(40) % 4)[groups]
        is_taken = draw_groups(classes, groups, len(groups) // 4, seed)
        assert not np.intersect1d(groups[is_taken], groups[~is_taken]).size
        shares = np.bincount(classes[is_taken]) / np.bincount(classes)
        assert (shares > 0.1).all() and (shares < 0.4).all()
    alone = draw_groups(np.repeat([0, 1, 1], 4), np.repeat([0, 1, 2], 4), 1, 0)
    assert alone[:4].sum() == 0 and alone.sum() == 4
