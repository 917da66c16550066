"""Plans of a run: steps are those of the schedule, times are measured, nothing stays.

Rejected: a stage that trains and is not in the plan; a plan that leaves a folder.
"""

import re
import tempfile

import pytest

FEATURES = ("autoencoder.filters=4", "compute.precision=float32")
SETTINGS = {
    "capsules": (*FEATURES, "encoder.capsules=3", "encoder.dim=4"),
    "neurons": (*FEATURES, "experts.capsules=3", "experts.dim=4", "experts.joint_steps=3"),
    "rbm": ("rbm.hidden=10", "rbm.persistent_chains=20"),
    "capsnet": ("capsnet.filters=6", "capsnet.types=2", "compute.precision=float32"),
    "matrix-capsules": (
        "matrix.filters=4", "matrix.primary_types=2", "matrix.types=2", "matrix.last_types=2",
        "matrix.size=2", "compute.precision=float32", "matrix.augmentation=none",
    ),
}  # fmt: skip
STAGES = {
    "capsules": ["autoencoder", "encoder", "decoder"],
    "neurons": ["autoencoder", "experts"],
    "rbm": ["rbm"],
    "capsnet": ["capsnet"],
    "matrix-capsules": ["matrix"],
}
RECIPES = {"rbm": "small", "capsnet": "small", "matrix-capsules": "small"}


def planned(capspoe, model, folder, *more):
    """Stages of a dry run: pairs of name and milliseconds of a step."""
    options = ["train", "--model", model, "--dataset", "digits", "--limit", "60", "--dry-run"]
    options += ["--model-dir", folder / "model", "--batch-size", "20", *more]
    result = capspoe(*options)
    assert result.exit_code == 0, result.output
    assert re.search(r"About \d+ (s|min) of training steps", result.output), result.output
    return re.findall(r"^  (\w+) +\d+ epochs, \d+ steps of ([\d,]+) ms: ", result.output, re.M)


@pytest.mark.measured
@pytest.mark.some(5)
@pytest.mark.parametrize("model", sorted(SETTINGS, reverse=True))
def test_each_stage_that_trains_is_measured(capspoe, tmp_path, monkeypatch, model):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    settings = [word for name in SETTINGS[model] for word in ("--set", name)]
    settings += ["--recipe", RECIPES[model]] if model in RECIPES else []
    found = planned(capspoe, model, tmp_path, *settings)
    assert [name for name, _ in found] == STAGES[model]
    # TensorFlow deletes its own temporary files when the process ends.
    assert not (tmp_path / "model").exists()
    assert not any(path.is_dir() for path in (tmp_path / "tmp").iterdir())
