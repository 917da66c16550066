"""What a run does to its folder: nothing is lost, nothing of another run is taken for its own."""

import errno
import json
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

from keras_capsule_poe.errors import BadUse, ConfigError, DataError, RunFailed
from keras_capsule_poe.io.records import read_record, remove_record, write_record
from keras_capsule_poe.training import RunFolder


def no_images():
    raise BadUse("no such data")


def other_images(load):
    return lambda: load(seed=5)


@pytest.fixture
def images(engine):
    return engine.load


def other(engine, stages=None):
    """Settings of another model."""

    class Other(engine.settings):
        MODEL = "other"
        STAGES = stages or engine.settings.STAGES

    return Other


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
    class Some(engine.settings):
        @property
        def stages(self):
            return {k: v for k, v in self.STAGES.items() if k != "first" or self.first.size > 1}

    engine.train(settings=Some)
    # What reads its cache does not wait for it, and a second run does not either.
    assert engine.log == ["second", "last"] and not (engine.folder / "first").exists()
    engine.train(settings=Some)
    assert engine.log == []
    with pytest.raises(ConfigError, match="has no stage 'first'; it has second, last"):
        engine.train(settings=Some, stage="first")
    engine.train(settings=Some, first={"size": 2}, folder=tmp_path / "other")
    assert engine.log == ["first", "second", "last"]


def test_fresh_with_unknown_data_deletes_nothing(engine, done):
    engine.refuses("no such data", BadUse, load=no_images, fresh=True)
    engine.refuses("no such data", BadUse, load=no_images, fresh=True, stage="second")


def test_fresh_with_settings_that_cannot_be_deletes_nothing(engine, done):
    engine.refuses("size", ConfigError, fresh=True, second={"size": 0})


def test_fresh_with_images_that_the_model_cannot_take_deletes_nothing(engine, done):
    class Labelled(engine.settings):
        def check_images(self, data):
            raise DataError(f"no labels in {len(data.train)} images")

    engine.refuses("no labels in 17 images", DataError, fresh=True, settings=Labelled)
    engine.refuses("no labels", DataError, fresh=True, stage="second", settings=Labelled)
    # The export alone trains on no image.
    engine.train(fresh=True, stage="last", settings=Labelled)
    assert engine.log == ["last"]


def test_fresh_of_a_stage_checks_the_stages_that_stay(engine, done):
    engine.refuses(r"first.size: 1 -> 2", fresh=True, stage="second", first={"size": 2})
    engine.refuses("seed: 0 -> 3", fresh=True, stage="last", seed=3)


def test_fresh_of_a_stage_with_other_images_deletes_nothing(engine, done, images):
    engine.refuses("not those", fresh=True, stage="second", load=other_images(images))


def test_fresh_of_the_first_stage_may_take_other_images(engine, done, images):
    engine.train(fresh=True, stage="first", load=other_images(images))
    assert engine.log == ["first"]
    assert json.loads((engine.folder / "run.json").read_text())["config"]["dataset"] == "any"
    engine.train(load=other_images(images))
    assert engine.log == ["second", "last"]
    engine.refuses("not those", fresh=True, stage="last", load=images)


def test_other_images_are_refused_while_stages_are_to_do(engine, images):
    engine.train(stage="first")
    engine.refuses("not those", load=other_images(images))


def test_fresh_takes_the_finished_model_away_at_once(engine, done):
    engine.stop_before = "second"
    with pytest.raises(KeyboardInterrupt):
        engine.train(fresh=True, seed=4)
    assert engine.log == ["first"]
    # Otherwise the old model would be sampled under the new configuration.
    assert not (engine.folder / "model.keras").exists()
    assert not (engine.folder / "samples.png").exists()


OF_THE_USER = (
    "samples-of-mine.png", "samples-prior.png", "notes.txt", "second/notes.txt", "first/a copy.txt",
    "last/samples.png", "pictures/mine.png",
)  # fmt: skip


@pytest.mark.parametrize("name", OF_THE_USER)
def test_a_stage_removes_the_files_that_it_wrote_alone(engine, done, name):
    path = engine.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    for seed in (4, 5):
        engine.train(fresh=True, seed=seed)
        assert path.read_text() == "mine"
        assert f"{seed}" in (engine.folder / "second" / "b.txt").read_text()


def test_a_stage_that_never_finished_keeps_files_of_the_user(engine, done):
    for stage in ("second", "last"):
        remove_record(engine.folder / stage / "done.json")
    (engine.folder / "second" / "notes.txt").write_text("mine")
    (engine.folder / "second" / "checkpoints").mkdir()
    engine.train(stage="first", fresh=True, seed=4)
    kept = sorted(path.name for path in (engine.folder / "second").iterdir())
    assert "notes.txt" in kept and "checkpoints" not in kept
    engine.train(seed=4)
    assert "4" in (engine.folder / "second" / "b.txt").read_text()


def test_a_record_of_elsewhere_removes_no_files_of_others(engine, done, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    for stage in ("second", "last"):
        place = engine.folder / stage / "done.json"
        record = read_record(place)
        names = ("../mine.txt", "second/../../mine.txt", str(tmp_path / "mine.txt"))
        record["files"] |= dict.fromkeys(names, "0")
        record["pictures"] = list(names)
        write_record(place, record)
    engine.train(fresh=True, seed=4)
    assert (tmp_path / "mine.txt").read_text() == "mine"


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


def test_a_folder_of_other_files_is_refused(engine):
    engine.folder.mkdir()
    (engine.folder / "thesis.txt").write_text("mine")
    engine.refuses("no training run", fresh=True)


@pytest.mark.parametrize("setting", ["model", "held_out"])
def test_a_run_of_an_older_version_is_named_and_can_be_started_over(engine, done, setting):
    path = engine.folder / "run.json"
    saved = json.loads(path.read_text())
    del saved["config"][setting], saved["digest"]
    path.write_text(json.dumps(saved))
    engine.refuses("older version")
    engine.train(fresh=True)
    assert engine.log == ["first", "second", "last"]


def test_another_model_s_folder_is_refused(engine, done):
    engine.refuses("holds a model 'fake', not 'other'", settings=other(engine))


def test_another_model_s_folder_is_refused_where_no_stage_has_the_same_name(engine):
    engine.train(stage="first")
    stages = {f"other {name}": () for name in engine.settings.STAGES}
    for fresh in (False, True):
        words = "holds a model 'fake', not 'other'"
        engine.refuses(words, settings=other(engine, stages), fresh=fresh)


def test_a_model_of_which_nothing_began_gives_way(engine):
    engine.stop_before = "first"
    with pytest.raises(KeyboardInterrupt):
        engine.train()
    (engine.folder / "first").rmdir()
    engine.stop_before = None
    engine.train(settings=other(engine))
    assert engine.log == ["first", "second", "last"]


def test_fresh_of_a_stage_looks_at_what_stays_before_it_deletes(engine, done):
    (engine.folder / "first" / "a.txt").write_text("damaged")
    # Its cache is gone: it is made again, and needs no look.
    engine.train(stage="second", fresh=True)
    assert engine.log == ["first", "second"]
    engine.train()
    (engine.folder / "second" / "b.txt").write_text("damaged")
    engine.refuses("b.txt is not what stage second wrote", fresh=True, stage="last")


def test_fresh_goes_from_the_last_stage_to_the_first(engine, done, monkeypatch):
    cleared, clear = [], RunFolder.clear

    def clear_one(folder, stage, is_last):
        if cleared:
            raise KeyboardInterrupt
        cleared.append(stage)
        clear(folder, stage, is_last)

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

    monkeypatch.setattr(folder_module, "remove", fails)
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
    assert refused.value.hint == "model_dir"
    assert not (tmp_path / name).exists()


def test_an_unknown_stage_lists_the_known_ones(engine):
    with pytest.raises(ConfigError, match="first, second, last"):
        engine.train(stage="third")


@pytest.mark.parametrize("labelled", [True, False])
def test_other_labels_are_other_data_where_they_are_trained_on(engine, images, labelled):
    def load(turn):
        data = images()
        train = replace(data.train, labels=(np.arange(len(data.train)) + turn) % 3)
        return lambda: replace(data, train=train)

    class Chosen(engine.settings):
        LABELLED = labelled

    engine.train(stage="first", settings=Chosen, load=load(0))
    saved = json.loads((engine.folder / "run.json").read_text())
    if labelled:
        engine.refuses("The labels of any are not those", settings=Chosen, load=load(1))
    else:
        engine.train(stage="second", settings=Chosen, load=load(1))
    # Runs of older versions have no fingerprints of labels.
    del saved["digest"]
    for name in ("train_labels", "held_out_labels", "test_labels"):
        del saved["fingerprint"][name]
    (engine.folder / "run.json").write_text(json.dumps(saved))
    engine.train(settings=Chosen, load=load(1))


def test_the_whole_path_is_named_if_its_folders_have_odd_names(tmp_path, monkeypatch):
    odd = tmp_path / "a[1]"
    odd.mkdir()
    monkeypatch.chdir(odd)
    with pytest.raises(ConfigError, match=r"Received: /.*a\[1\]/m"):
        RunFolder("m")
