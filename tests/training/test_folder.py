"""What a run does to its folder: nothing is lost, nothing of another run is taken for its own."""

import errno
import json
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from keras_capsule_poe.errors import BadUse, ConfigError, RunFailed
from keras_capsule_poe.io.records import copy_of, remove_record
from keras_capsule_poe.training import RunFolder


def no_images():
    raise BadUse("no such data")


def other_images(load):
    return lambda: load(seed=5)


@pytest.fixture
def images(engine):
    return engine.train.__defaults__[0]


@pytest.fixture
def done(engine):
    """A finished run: its files."""
    engine.train()
    (engine.folder / "samples.png").write_text("a picture")
    return engine.files()


def refuses(engine, words, error=RunFailed, **arguments):
    """The call fails with these words, and every file stays as it was."""
    before = engine.files()
    with pytest.raises(error, match=words):
        engine.train(**arguments)
    assert engine.files() == before
    assert engine.log == []


def test_stages_run_once_and_in_order(engine):
    engine.train()
    assert engine.log == ["first", "second", "last"]
    assert not (engine.folder / "first" / "rows.txt").exists(), "the cache outlives training"
    engine.train()
    assert engine.log == []
    assert [line for line in engine.lines if line.endswith("done before")] == [
        "first: done before", "second: done before", "last: done before"
    ]  # fmt: skip


def test_a_stage_that_settings_leave_out_is_none_of_the_run(engine, tmp_path):
    from dataclasses import replace

    first, *rest = engine.family.stages
    first = replace(first, when=lambda config: config["first"].size > 1)
    family = replace(engine.family, stages=(first, *rest))
    engine.train(family=family)
    # What reads its cache does not wait for it, and a second run does not either.
    assert engine.log == ["second", "last"] and not (engine.folder / "first").exists()
    engine.train(family=family)
    assert engine.log == []
    with pytest.raises(ConfigError, match="has no stage 'first'; it has second, last"):
        engine.train(family=family, stage="first")
    engine.train(family=family, first={"size": 2}, folder=tmp_path / "other")
    assert engine.log == ["first", "second", "last"]


def test_fresh_with_unknown_data_deletes_nothing(engine, done):
    refuses(engine, "no such data", BadUse, load=no_images, fresh=True)
    refuses(engine, "no such data", BadUse, load=no_images, fresh=True, stage="second")


def test_fresh_with_settings_that_cannot_be_deletes_nothing(engine, done):
    refuses(engine, "size", ConfigError, fresh=True, second={"size": 0})


def test_fresh_of_a_stage_checks_the_stages_that_stay(engine, done):
    refuses(engine, r"first.size: 1 -> 2", fresh=True, stage="second", first={"size": 2})
    refuses(engine, "seed: 0 -> 3", fresh=True, stage="last", seed=3)


def test_fresh_of_a_stage_with_other_images_deletes_nothing(engine, done, images):
    refuses(engine, "not those", fresh=True, stage="second", load=other_images(images))


def test_fresh_of_the_first_stage_may_take_other_images(engine, done, images):
    engine.train(fresh=True, stage="first", load=other_images(images))
    assert engine.log == ["first"]
    assert json.loads((engine.folder / "run.json").read_text())["config"]["dataset"] == "any"
    engine.train(load=other_images(images))
    assert engine.log == ["second", "last"]
    refuses(engine, "not those", fresh=True, stage="last", load=images)


def test_other_images_are_refused_while_stages_are_to_do(engine, images):
    engine.train(stage="first")
    refuses(engine, "not those", load=other_images(images))


def test_fresh_takes_the_finished_model_away_at_once(engine, done):
    engine.stop_before = "second"
    with pytest.raises(KeyboardInterrupt):
        engine.train(fresh=True, seed=4)
    assert engine.log == ["first"]
    # Otherwise the old model would be sampled under the new configuration.
    assert not (engine.folder / "model.keras").exists()
    assert not (engine.folder / "samples.png").exists()


def test_a_run_stopped_between_stages_goes_on(engine):
    engine.stop_before = "last"
    with pytest.raises(KeyboardInterrupt):
        engine.train()
    engine.stop_before = None
    engine.train()
    assert engine.log == ["last"]


def test_what_follows_a_stage_that_is_done_again_is_done_again(engine, done):
    remove_record(engine.folder / "first" / "done.json")
    engine.train()
    assert engine.log == ["first", "second", "last"]


def test_settings_of_stages_to_come_may_change(engine):
    engine.train(stage="first")
    engine.train(second={"size": 7})
    assert engine.log == ["second", "last"]
    assert (engine.folder / "second" / "b.txt").read_text() == "second 7 0\n"


def test_a_missing_cache_is_made_again_where_it_is_needed(engine):
    engine.train(stage="first")
    (engine.folder / "first" / "rows.txt").unlink()
    engine.train()
    assert engine.log == ["first", "second", "last"]


@pytest.mark.parametrize("name", ["first/a.txt", "second/b.txt"])
def test_a_file_of_another_run_is_refused(engine, done, name):
    (engine.folder / name).write_text("from elsewhere")
    remove_record(engine.folder / "last" / "done.json")
    refuses(engine, f"{name} is not what stage {name.split('/')[0]} wrote")
    (engine.folder / name).unlink()
    refuses(engine, f"{name} is missing")


def test_a_whole_stage_of_another_run_is_refused(engine, done, tmp_path):
    engine.train(folder=tmp_path / "other")
    shutil.rmtree(engine.folder / "second")
    shutil.copytree(tmp_path / "other" / "second", engine.folder / "second")
    remove_record(engine.folder / "last" / "done.json")
    refuses(engine, "second is of another run")
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
    refuses(engine, "does not describe a training run", fresh=True)
    refuses(engine, "does not describe a training run")


def test_a_folder_of_other_files_is_refused(engine):
    engine.folder.mkdir()
    (engine.folder / "thesis.txt").write_text("mine")
    refuses(engine, "no training run", fresh=True)


@pytest.mark.parametrize("setting", ["model", "held_out"])
def test_a_run_of_an_older_version_is_named_and_can_be_started_over(engine, done, setting):
    path = engine.folder / "run.json"
    saved = json.loads(path.read_text())
    del saved["config"][setting], saved["digest"]
    path.write_text(json.dumps(saved))
    refuses(engine, "older version")
    engine.train(fresh=True)
    assert engine.log == ["first", "second", "last"]


def test_another_model_s_folder_is_refused(engine, done):
    from dataclasses import replace

    refuses(
        engine, "holds a model 'fake', not 'other'", family=replace(engine.family, name="other")
    )


def test_another_model_s_folder_is_refused_where_no_stage_has_the_same_name(engine):
    from dataclasses import replace

    engine.train(stage="first")
    stages = [replace(s, name=f"other {s.name}", section=None) for s in engine.family.stages]
    other = replace(engine.family, name="other", stages=tuple(stages))
    refuses(engine, "holds a model 'fake', not 'other'", family=other)
    refuses(engine, "holds a model 'fake', not 'other'", family=other, fresh=True)


def test_a_model_of_which_nothing_began_gives_way(engine):
    from dataclasses import replace

    engine.stop_before = "first"
    with pytest.raises(KeyboardInterrupt):
        engine.train()
    (engine.folder / "first").rmdir()
    engine.stop_before = None
    engine.train(family=replace(engine.family, name="other"))
    assert engine.log == ["first", "second", "last"]


def test_fresh_of_a_stage_looks_at_what_stays_before_it_deletes(engine, done):
    (engine.folder / "first" / "a.txt").write_text("damaged")
    # Its cache is gone: it is made again, and needs no look.
    engine.train(stage="second", fresh=True)
    assert engine.log == ["first", "second"]
    engine.train()
    (engine.folder / "second" / "b.txt").write_text("damaged")
    refuses(engine, "b.txt is not what stage second wrote", fresh=True, stage="last")


def test_fresh_goes_from_the_last_stage_to_the_first(engine, done, monkeypatch):
    cleared, clear = [], RunFolder.clear

    def clear_one(folder, stage):
        if cleared:
            raise KeyboardInterrupt
        cleared.append(stage.name)
        clear(folder, stage)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunFolder, "clear", clear_one)
        engine.train(fresh=True)
    assert cleared == ["last"]
    engine.train()
    assert engine.log == ["last"]


def test_checkpoints_on_top_of_a_stage_that_is_done_again_are_not_taken_up(engine):
    engine.stop_before = "second"
    with pytest.raises(KeyboardInterrupt):
        engine.train()
    checkpoint = engine.folder / "second" / "checkpoints" / "step-000000001"
    checkpoint.mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        engine.train()
    assert checkpoint.exists(), "the first stage was done"
    remove_record(engine.folder / "first" / "done.json")
    with pytest.raises(KeyboardInterrupt):
        engine.train()
    assert engine.log == ["first"] and not checkpoint.exists()


def test_what_cannot_be_deleted_stops_a_fresh_start(engine, done, monkeypatch):
    from keras_capsule_poe.training import folder as folder_module

    def fails(path):
        raise RunFailed(f"Cannot delete {path}.")

    monkeypatch.setattr(folder_module, "clear_folder", fails)
    with pytest.raises(RunFailed, match="Cannot delete"):
        engine.train(fresh=True, seed=9)
    assert engine.log == []
    monkeypatch.undo()
    # What is left is not taken for the new run's.
    assert json.loads((engine.folder / "run.json").read_text())["config"]["seed"] == 0


def test_a_stage_folder_behind_a_link_is_cleared(engine, done, tmp_path):
    elsewhere = tmp_path / "large disk"
    (engine.folder / "second").rename(elsewhere)
    (engine.folder / "second").symlink_to(elsewhere)
    engine.train(fresh=True, seed=6)
    assert engine.log == ["first", "second", "last"]
    assert (elsewhere / "b.txt").read_text() == "second 1 6\n"


HOLDER = textwrap.dedent(
    """
    import sys, time
    from keras_capsule_poe.training import RunFolder
    with RunFolder(sys.argv[1]).locked(print):
        print("locked", flush=True)
        time.sleep(60)
    """
)


def test_two_processes_do_not_train_in_one_folder(engine, done):
    command = [sys.executable, "-c", HOLDER, engine.folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(RunFailed, match="Another process is training"):
                engine.train(fresh=True, seed=5)
            assert engine.files()["model.keras"] == done["model.keras"]
        finally:
            holder.kill()
    engine.train(fresh=True, seed=5)  # a dead process holds no lock
    assert engine.log == ["first", "second", "last"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSYS, "no locks"), OSError(errno.ENOLCK, "no"), NotImplementedError()]
)
def test_where_there_are_no_locks_it_says_so(engine, monkeypatch, error):
    def refuse(lock, timeout):
        raise error

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    engine.train()
    assert engine.log == ["first", "second", "last"]
    assert f"{engine.folder} cannot be locked here" in engine.lines[0]


@pytest.mark.parametrize("name", ["run [1]", "what?", "a*"])
def test_folders_that_tensorflow_takes_for_patterns_are_refused(engine, tmp_path, name):
    with pytest.raises(ConfigError, match="must not hold any of") as refused:
        engine.train(folder=tmp_path / name)
    assert refused.value.mend == "model_dir"
    assert not (tmp_path / name).exists()


def test_an_unknown_stage_lists_the_known_ones(engine):
    with pytest.raises(ConfigError, match="first, second, last"):
        engine.train(stage="third")


def test_damaged_done_is_named(engine, done):
    path = RunFolder(engine.folder).stage("second") / "done.json"
    copy_of(path).unlink()
    for content in ("[]", "{}", "null", "no JSON"):
        path.write_text(content)
        with pytest.raises(RunFailed, match="second/done.json is damaged") as failed:
            engine.train()
        assert failed.value.mend == "stage_fresh:second"
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
    refuses(engine, "first is of another run than .*run.json")


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


@pytest.mark.parametrize("labelled", [True, False])
def test_other_labels_are_other_data_where_they_are_trained_on(engine, images, labelled):
    from dataclasses import replace

    def load(turn):
        data = images()
        train = replace(data.train, labels=(np.arange(len(data.train)) + turn) % 3)
        return lambda: replace(data, train=train)

    family = replace(engine.family, labelled=labelled)
    engine.train(stage="first", family=family, load=load(0))
    saved = json.loads((engine.folder / "run.json").read_text())
    if labelled:
        refuses(engine, "The labels of any are not those", family=family, load=load(1))
    else:
        engine.train(stage="second", family=family, load=load(1))
    # Runs of older versions have no fingerprints of labels.
    del saved["digest"]
    for name in ("train_labels", "held_out_labels", "test_labels"):
        del saved["fingerprint"][name]
    (engine.folder / "run.json").write_text(json.dumps(saved))
    engine.train(family=family, load=load(1))
