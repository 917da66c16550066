"""What a run finds in its folder that it did not write: named, made again, or never mistaken.

Rejected: files and stages of other runs, damaged records and caches, stale files of dead processes.
"""

import json
import shutil
import subprocess
import sys

import pytest

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.records import copy_of, remove_record
from keras_capsule_poe.training import RunFolder


def test_a_missing_cache_is_made_again_where_it_is_needed(engine):
    engine.train(stage="first")
    (engine.folder / "first" / "rows.txt").unlink()
    engine.train()
    assert engine.log == ["first", "second", "last"]


@pytest.mark.parametrize("name", ["first/a.txt", "second/b.txt"])
def test_a_file_of_another_run_is_refused(engine, done, name):
    (engine.folder / name).write_text("from elsewhere")
    remove_record(engine.folder / "last" / "done.json")
    engine.refuses(f"{name} is not what stage {name.split('/')[0]} wrote")
    (engine.folder / name).unlink()
    engine.refuses(f"{name} is missing")


def test_a_whole_stage_of_another_run_is_refused(engine, done, tmp_path):
    engine.train(folder=tmp_path / "other")
    shutil.rmtree(engine.folder / "second")
    shutil.copytree(tmp_path / "other" / "second", engine.folder / "second")
    remove_record(engine.folder / "last" / "done.json")
    engine.refuses("second is of another run")
    engine.train(stage="second", fresh=True)
    engine.train()
    # A copy of the whole folder is the same run.
    shutil.copytree(engine.folder, tmp_path / "copy")
    engine.train(folder=tmp_path / "copy")
    assert engine.log == []


def test_a_finished_model_that_is_gone_is_written_again(engine, done):
    (engine.folder / "model.keras").unlink()
    engine.train()
    assert engine.log == ["last"]
    assert engine.files()["model.keras"] == done["model.keras"]


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"config": {}}', '{"config": 3}'])
def test_a_run_json_of_something_else_is_no_licence_to_delete(engine, content):
    (engine.folder / "last").mkdir(parents=True)
    (engine.folder / "run.json").write_text(content)
    (engine.folder / "last" / "precious.txt").write_text("mine")
    engine.refuses("it holds something else", fresh=True)
    engine.refuses("it holds something else")


def test_damaged_done_is_named(engine, done):
    path = RunFolder(engine.folder).stage("second") / "done.json"
    copy_of(path).unlink()
    for content in ("[]", "{}", "null", "no JSON"):
        path.write_text(content)
        with pytest.raises(RunFailed, match="second/done.json is damaged") as failed:
            engine.train()
        assert failed.value.hint == "stage_fresh:second"
    engine.train(stage="second", fresh=True)
    assert engine.log == ["first", "second"]


@pytest.mark.parametrize("name", ["run.json", "second/done.json"])
@pytest.mark.parametrize("content", ["", "\0" * 300, '{"seconds": 1, "digest": "0"}'])
def test_a_damaged_record_costs_nothing(engine, done, name, content):
    (engine.folder / name).write_text(content)
    remove_record(engine.folder / "last" / "done.json")
    engine.train()
    assert engine.log == ["last"]
    assert engine.files()["model.keras"] == done["model.keras"]


@pytest.mark.parametrize("name", ["run.json", "second/done.json"])
def test_a_missing_record_costs_nothing(engine, done, name):
    (engine.folder / name).unlink()
    engine.train()
    assert engine.log == []
    assert RunFolder(engine.folder).saved() and RunFolder(engine.folder).done("second")


def test_no_copy_makes_a_stage_done_that_is_to_be_done_again(engine, done):
    engine.stop_before = "second"
    with pytest.raises(KeyboardInterrupt):
        engine.train(fresh=True, stage="second")
    folder = RunFolder(engine.folder)
    assert folder.done("first") and not folder.done("second") and not folder.done("last")


@pytest.mark.parametrize("content", ["", "first 1 1\n", "first 1 0\0"])
def test_a_damaged_cache_is_made_again_and_the_work_on_it_stays(engine, content):
    engine.train(stage="first")
    (engine.folder / "first" / "rows.txt").write_text(content)
    checkpoint = engine.folder / "second" / "checkpoints" / "step-000000001"
    checkpoint.mkdir(parents=True)
    engine.stop_before = "second"
    with pytest.raises(KeyboardInterrupt):
        engine.train()
    assert engine.log == ["first"] and checkpoint.exists()
    assert any("rows.txt is damaged: first makes it again" in line for line in engine.lines)
    assert (engine.folder / "first" / "rows.txt").read_text() == "first 1 0\n"


def test_a_run_json_of_another_run_is_named_before_its_settings(engine, done, tmp_path):
    engine.train(folder=tmp_path / "other", seed=5)
    shutil.copy(tmp_path / "other" / "run.json", engine.folder)
    engine.log.clear()
    engine.refuses("first is of another run than .*run.json")


def test_what_killed_processes_left_is_gone_after_the_next_start(engine, done):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in ("probe", "first/rows.txt", "last/done.json", "pictures/a.png"):
        path = engine.folder / name
        path.parent.mkdir(exist_ok=True)
        path.with_name(f".{path.name}.{dead.pid:06x}00").write_text("half")
    # Killed after it was marked as done.
    (engine.folder / "second" / "checkpoints" / "step-000000001").mkdir(parents=True)
    engine.train()
    assert engine.log == []
    assert engine.files() == done


def test_a_value_made_once_outlives_kills_until_its_stage_is_done(engine):
    run = engine.train(stage="second")
    assert [run.once("last", "version", lambda n=n: n) for n in (3, 4)] == [3, 3]
    engine.train()
    assert run.once("last", "version", lambda: 5) == 5


def test_a_history_is_of_its_stage(engine, done):
    run, path = RunFolder(engine.folder), engine.folder / "second" / "history.json"
    path.write_text('[{"epoch": 1}]')
    stage = "second"
    run.mark_done(stage, 1.0, {})
    assert run.history(stage) == [{"epoch": 1}]
    for text in ('[{"epoch": 2}]', "["):
        path.write_text(text)
        with pytest.raises(RunFailed, match="history.json is not what stage second wrote"):
            run.history(stage)
    path.write_text('[{"epoch": 1}]')
    # A whole stage of another run, as its files say themselves.
    saved = run.saved()
    run.save(engine.settings(), saved["fingerprint"], "another")
    with pytest.raises(RunFailed, match="second is of another run"):
        run.history(stage)
    path.unlink()
    assert run.history(stage) == []


@pytest.mark.parametrize(
    "name, value",
    [("seconds", None), ("seconds", "x"), ("metrics", []), ("files", None), ("cache", None)],
)
def test_a_record_of_a_stage_that_holds_other_kinds_is_damaged(engine, done, name, value):
    path = engine.folder / "second" / "done.json"
    values = {"seconds": 1.0, "metrics": {}, "files": {}, name: value}
    path.write_text(json.dumps(values))
    path.with_name(".done.json").write_text(json.dumps(values))
    with pytest.raises(RunFailed, match="done.json is damaged") as failed:
        RunFolder(engine.folder).done("second")
    assert failed.value.hint == "stage_fresh:second"


@pytest.mark.parametrize(
    "values",
    [
        {"fingerprint": 5}, {"fingerprint": {"train": [1]}}, {"run": 5}, {"preparation": []},
        {"class_names": "ab"}, {"class_names": [1]}, {"data_path": 5}, {"paths": {"labels": 5}},
        {"start": {"rbm": 5}}, {"goes_on": "rbm"},
    ],
)  # fmt: skip
def test_a_run_json_of_other_types_is_damaged(tmp_path, values):
    run = {"config": {"dataset": "x", "model": "rbm", "held_out": 1}, **values}
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(RunFailed, match="run.json is damaged: it holds something else"):
        RunFolder(tmp_path).saved()
