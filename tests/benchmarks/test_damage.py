"""Each file of a trained folder, damaged: the commands find it, or give what they gave before."""

import shutil

import damage
import numpy as np
import pytest

from keras_capsule_poe.io.records import remove_record

SAMPLES = ("--out", "samples.npz", "--n", 3)


@pytest.fixture
def folder(tiny_model, tmp_path):
    """A copy of a trained run, and no other model."""
    return shutil.copytree(tiny_model, tmp_path / "copy")


def last_line(result):
    return result.output.strip().splitlines()[-1]


@pytest.mark.long
@pytest.mark.parametrize("how", ["cut", "empty", "zeroed", "flipped"])
@pytest.mark.parametrize("name", ["model.keras", "encoder/codes.npy", "features/primary.npz"])
def test_damaged_weights_and_arrays_are_named(capspoe, folder, tiny, name, how):
    assert damage.damage(folder / name, how)
    if name != "model.keras":
        remove_record(folder / "export" / "done.json")
    for command in (
        ("train", "--dataset", "digits", "--model-dir", folder, *tiny),
        *([("sample", "--model-dir", folder, *SAMPLES)] if name == "model.keras" else []),
    ):
        result = capspoe(*command)
        assert result.exit_code == 1, result.output
        assert f"{folder / name} is not what stage" in last_line(result)
        assert "--fresh" in last_line(result)


@pytest.fixture(scope="module")
def drawn(capspoe, tmp_path_factory):
    """What is drawn of the model in a folder, as a function."""

    def draw(folder):
        out = tmp_path_factory.mktemp("drawn") / "samples.npz"
        result = capspoe("sample", "--model-dir", folder, "--out", out, "--n", 3)
        assert result.exit_code == 0, result.output
        with np.load(out) as arrays:
            return arrays["images"]

    return draw


@pytest.fixture(scope="module")
def undamaged(drawn, tiny_model):
    return drawn(tiny_model)


@pytest.mark.some(5)
@pytest.mark.parametrize("how", ["cut", "empty", "zeroed", "flipped", "deleted"])
def test_a_damaged_run_json_changes_nothing(drawn, undamaged, folder, how):
    assert damage.damage(folder / "run.json", how)
    np.testing.assert_array_equal(drawn(folder), undamaged)


def test_a_flipped_bit_of_a_saved_model_breaks_its_sums(folder):
    (version,) = [path.parent for path in sorted(folder.glob("*/saved_model.pb"))[:1]]
    assert damage.sums_hold(version)
    damage.damage(version / "saved_model.pb", "flipped", place=1000)
    assert not damage.sums_hold(version)


def test_a_damage_that_changes_nothing_is_not_counted(tmp_path):
    (tmp_path / "a").write_bytes(b"\0\0")
    assert not damage.damage(tmp_path / "a", "zeroed")
    assert not damage.damage(tmp_path / "a", "foreign", tmp_path / "none")
    assert damage.damage(tmp_path / "a", "flipped", place=1)
    assert (tmp_path / "a").read_bytes() == b"\0\x04"
