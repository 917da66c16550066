"""`capspoe sweep`: its trainings are those of `capspoe train`, go on, and end in a table."""

import json
import shutil

import numpy as np
import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe.errors import Diverged

OPTIONS = ("--dataset", "digits", "--model", "rbm", "--limit", 60, "--epochs", 1)
SWEPT = ("--set", "rbm.hidden=4,10", "--seeds", 2)


@pytest.fixture(scope="module")
def swept(asked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps") / "sweep"
    return folder, asked("sweep", *OPTIONS, *SWEPT, "--model-dir", folder)


@pytest.mark.long
def test_a_sweep_goes_on_and_tabulates(asked, swept, tmp_path):
    folder, shown = swept[0], " ".join(swept[1].split())
    names = [f"rbm.hidden={hidden},seed={seed}" for hidden in (4, 10) for seed in (0, 1)]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    for words in (f"[4/4] {names[3]}", "rbm.hidden 4 10", "seed 0, 1 0, 1", "number of seeds 2 2"):
        assert words in shown
    copy = shutil.copytree(folder, tmp_path / "copy")
    # One had not begun, and one was killed before its last part.
    shutil.rmtree(copy / names[1])
    shutil.rmtree(copy / names[2] / "export")
    kept = [copy / name / "rbm" / "model.keras" for name in (names[0], names[2], names[3])]
    before = [path.stat().st_mtime_ns for path in kept]
    again = asked("sweep", *OPTIONS, *SWEPT, "--model-dir", copy)
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert again.count("trained before") == 2 and f"{names[3]}: trained before" in again
    of_one = ("--seed", 1, "--set", "rbm.hidden=4", "--model-dir", tmp_path / "one")
    asked("train", *OPTIONS, *of_one)
    wanted = kcp.load(tmp_path / "one").get_weights()
    for place in (folder, copy):
        for one, other in zip(kcp.load(place / names[1]).get_weights(), wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.long
def test_its_folder_is_compared_and_read(asked, swept, tmp_path):
    folder, path = swept[0], tmp_path / "c.json"
    shown = asked("compare", folder, "--recorded", "--json", path)
    assert shown.partition("\n\n")[2].partition("more")[0] in swept[1].partition("2 models")[2]
    found = json.loads(path.read_text())
    assert found["differing"] == ["rbm.hidden"]
    assert [column["seeds"] for column in found["columns"]] == [[0, 1], [0, 1]]
    rows = kcp.results(folder)
    assert [(row["rbm.hidden"], row["seed"]) for row in rows] == [(4, 0), (4, 1), (10, 0), (10, 1)]
    errors = [row["rbm.val_relative_error"] for row in rows]
    mean = found["columns"][1]["metrics"]["rbm.val_relative_error"]["mean"]
    assert mean == pytest.approx(np.mean(errors[2:])) and all(row["finished"] for row in rows)
    options = {"limit": 60, "epochs": 1, "model": "rbm", "verbose": 0}
    before = (folder / "rbm.hidden=4,seed=0" / "rbm" / "model.keras").stat().st_mtime_ns
    assert kcp.sweep("digits", {"rbm.hidden": [4, 10]}, 2, folder=folder, **options) == rows
    assert (folder / "rbm.hidden=4,seed=0" / "rbm" / "model.keras").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "given, words",
    [
        (("--set", "rbm.hidden=4,4"), "list of different values of rbm.hidden"),
        (("--set", "rbm.hidden=4,"), "list of different values of rbm.hidden"),
        (("--set", "rbm.hidden=4,04"), "which are the same"),
        (("--set", "rbm.hidden=4,5", "--set", "rbm.hidden=6,7"), "values of rbm.hidden at once"),
        (("--set", "rbm.hidden=4,0"), "rbm.hidden must be a whole number"),
        (("--set", "rbm.wings=4,5"), "no setting `rbm.wings`"),
        (("--set", "rbm"), "--set takes PART.KEY=VALUE,VALUE"),
        (("--set", "seed=1,2"), "`seeds` is the number of seeds"),
        (("--seeds", 0), "--seeds"),
        (("--seeds", 2, "--seed", 2**31 - 1), "`seed` must be"),
    ],
)  # fmt: skip
def test_a_sweep_that_cannot_be_is_refused_before_it_trains(asked, tmp_path, given, words):
    asked("sweep", *OPTIONS, *given, "--model-dir", tmp_path / "m", code=2, last=words)
    assert not (tmp_path / "m").exists()


@pytest.mark.long
def test_a_training_that_diverges_does_not_end_the_others(asked, swept, tmp_path, monkeypatch):
    folder, tried = shutil.copytree(swept[0], tmp_path / "m"), []

    def trained(model, path, *_):
        tried.append(path.name)
        if len(tried) == 2:
            raise Diverged("Stage rbm diverged.")

    monkeypatch.setattr("keras_capsule_poe.training.train", trained)
    command = ("sweep", *OPTIONS, *SWEPT, "--model-dir", folder)
    shown = asked(*command, code=1, last="1 of 4 trainings failed")
    assert len(tried) == 4 and "Error: Stage rbm diverged." in shown
    assert "number of seeds  " in shown and "1 " in shown
