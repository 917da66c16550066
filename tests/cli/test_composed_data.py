"""Composed data sets on the command line."""

import pytest

from keras_capsule_poe.cli.train import _folder_name
from keras_capsule_poe.families import get
from keras_capsule_poe.training import RunConfig


def test_a_plan_for_pairs(capspoe, tiny, tmp_path):
    folder = tmp_path / "model"
    result = capspoe(
        "train", "--dataset", "digits_multi", "--model-dir", folder, "--dry-run", *tiny
    )
    assert result.exit_code == 0, result.output
    # 96 pairs, of which four are held out.
    assert "2 epochs, 4 steps" in result.output
    assert not folder.exists()


def test_sizes_of_pairs_are_their_own(capspoe):
    result = capspoe("train", "--dataset", "digits_multi", "--image-size", "20", "--dry-run")
    assert result.exit_code == 2
    assert "composed of another. Received: image_size=" in result.output
    assert "Omit --image-size." in result.output


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("multimnist/shift=6", "multimnist-shift=6"),
        ("mnist_corrupted/fog", "mnist_corrupted-fog"),
        ("mnist", "mnist"),
        ("some/where/photos.npz", "photos"),
    ],
)
def test_folders_are_named_by_the_whole_name_of_a_data_set(dataset, name):
    assert _folder_name(RunConfig(get("capsules"), dataset=dataset)) == name
