"""Trained models as dicts, from folders that no training made.

Rejected: a run that is left out in silence, a setting that is missing where it is the default, runs
of a sweep out of order, a sweep whose combinations are the same.
"""

import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe import registry, runs
from keras_capsule_poe.errors import BadUse, ConfigError
from keras_capsule_poe.io.records import write_record
from keras_capsule_poe.training import RunFolder


def made(folder, model="rbm", done=("rbm", "export"), error=0.5, **settings):
    """A folder of a run as training leaves it, without its files."""
    folder.mkdir(parents=True)
    RunFolder(folder).save(registry.settings(model, **settings), None, "1")
    for stage in done:
        metrics = {
            "epoch": 3,
            "seconds": 1.0,
            "val_relative_error": error,
            "capsules": {"won": [1]},
        }
        metrics["complaints"] = ["it learned nothing"] if error == 1 else []
        (folder / stage).mkdir()
        values = {"seconds": 2.0, "metrics": metrics if stage != "export" else {"saved_model": "1"}}
        write_record(folder / stage / "done.json", {**values, "files": {}, "run": "1"})
    return folder


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "saved_models" / "a", dataset="digits", seed=3)
    made(tmp_path / "saved_models" / "b", dataset="digits", hidden=9, error=1, done=("rbm",))
    for hidden in (2, 10):
        name = f"rbm.hidden={hidden},seed=0"
        made(tmp_path / "saved_models" / "many" / name, hidden=hidden, rbm={"epochs": 2})
    (tmp_path / "saved_models" / "notes").mkdir()
    (tmp_path / "saved_models" / "README.md").touch()
    return tmp_path


def test_a_row_has_facts_settings_and_metrics(saved):
    rows = kcp.results("saved_models/*")
    assert [row["folder"].removeprefix("saved_models/") for row in rows] == [
        "a", "b", "many/rbm.hidden=2,seed=0", "many/rbm.hidden=10,seed=0",
    ]  # fmt: skip
    assert rows[0] == {
        "folder": "saved_models/a", "model": "rbm", "preset": "pixels", "dataset": "digits",
        "seed": 3, "finished": True, "seconds": 4.0, "warnings": None, "rbm.hidden": 500,
        "rbm.epochs": None, "rbm.val_relative_error": 0.5,
    }  # fmt: skip
    assert not rows[1]["finished"] and rows[1]["warnings"] == "rbm: it learned nothing"
    assert [row["rbm.hidden"] for row in rows] == [500, 9, 2, 10]


def test_metrics_of_evaluate_are_in_the_row(saved):
    (saved / "saved_models" / "a" / "model.keras").touch()
    counts = {"cat": {"cat": 3, "dog": 1}}
    metrics = {"accuracy": {"accuracy": 0.5, "low": 0.25}, "confusion": counts}
    metrics["samples"] = {"classifier_accuracy": 0.75, "prior": {"frechet": 2.0, "copies": None}}
    runs.keep(saved / "saved_models" / "a", metrics)
    (row,) = kcp.results(saved / "saved_models" / "a")
    found = {name: value for name, value in row.items() if name.startswith(("acc", "sam", "con"))}
    assert found == {
        "accuracy": 0.5, "accuracy.low": 0.25, "samples.classifier_accuracy": 0.75,
        "samples.prior.FID": 2.0, "samples.prior.copies": None,
    }  # fmt: skip


def test_a_run_that_cannot_be_read_is_left_out_by_name(saved):
    for name in ("run.json", ".run.json"):
        (saved / "saved_models" / "b" / name).write_text("{")
    with pytest.warns(UserWarning, match="saved_models/b is left out: .*run.json is damaged"):
        assert len(kcp.results("saved_models/*")) == 3


@pytest.mark.parametrize("given", ["nowhere", "saved_models/notes", "none*", "", 5, ["mnist", "x"]])
def test_a_place_without_runs_is_refused(saved, given):
    with pytest.raises(BadUse, match="`folders` must"):
        kcp.results(given)


def test_names_and_lists_and_runs_that_come_twice(saved):
    rows = kcp.results(["mnist", "saved_models/a", saved / "saved_models/a", "saved_models/*"])
    assert rows[0]["dataset"] == "mnist" and rows[0]["samples.prior.FID"] > 0
    assert [row["folder"] for row in rows].count("saved_models/a") == 1


def test_combinations_have_names_and_seeds():
    found = runs.combinations({"rbm.hidden": [4, 8]}, seeds=2, seed=5)
    assert list(found) == [f"rbm.hidden={h},seed={s}" for h in (4, 8) for s in (5, 6)]
    assert found["rbm.hidden=8,seed=5"] == {"rbm.hidden": 8, "seed": 5}
    assert list(runs.combinations({"labels": ["a/b*", "c"]}))[0] == "labels=a-b-,seed=0"


@pytest.mark.parametrize(
    "settings, more, words",
    [
        ({"hidden": [4, 4]}, {}, "list of different values of hidden"),
        ({"hidden": []}, {}, "list of different values"),
        ({"hidden": "48"}, {}, "list of different values"),
        ({"hidden": 4}, {}, "list of different values"),
        ({"hidden": [4, "04"]}, {}, "hidden=4,seed=0 and hidden=04,seed=0, which are the same"),
        ({"hidden": [4, 0]}, {}, "rbm.hidden must be"),
        ({"wings": [1, 2]}, {}, "no setting `wings`"),
        ({"seed": [1, 2]}, {}, "`seeds` is the number of seeds"),
        ({"hidden": [4, 5]}, {"seeds": 0}, "`seeds` must be"),
        ({"hidden": [4, 5]}, {"seeds": 2, "seed": 2**31 - 1}, "`seed` must be"),
        ({"hidden": [4, 5]}, {"folder": "saved_models/a"}, "which holds one"),
    ],
)  # fmt: skip
def test_a_sweep_that_cannot_be_is_refused_before_it_trains(saved, settings, more, words):
    options = {"model": "rbm", "folder": "sweep", **more}
    with pytest.raises((BadUse, ConfigError), match=words) as error:
        kcp.sweep("digits", settings, **options)
    assert "\n" not in str(error.value) and not (saved / "sweep").exists()
