"""Checks that a folder may hold a run, before anything in it changes."""

import uuid

from keras_capsule_poe.errors import RunFailed, listing
from keras_capsule_poe.training import images
from keras_capsule_poe.training.config import RunConfig


def acquire(run, cleared, again=()):
    """Acquire the folder for this run, or raise; then delete the stages that start over.

    Stages in `again` run again, but their files stay until they are replaced.
    """
    folder, config = run.folder, run.config
    stages = config.stages
    if folder.is_foreign():
        raise RunFailed(f"{folder.path} holds files but no training run.", hint="model_dir")
    stays = [stage for stage in stages if stage not in cleared]
    saved = folder.saved()
    if saved and stays:
        saved = folder.readable()
    _refuse_another_model(run, saved)
    begun = [stage for stage in stays if folder.has_begun(stage)]
    saved = saved or {}
    fingerprint = saved.get("fingerprint")
    of_data = {name: saved[name] for name in ("class_names", "data_path") if name in saved}
    if begun:
        for stage in begun:
            folder.check_run(stage)
        sections = {stage.section for stage in begun}
        config.adopt(RunConfig.from_dict(config.family, saved["config"]), sections)
        _refuse_differences(run, saved["config"], begun)
    done = [
        stage
        for stage in stays
        if stage not in again and folder.is_done(stage, stages, (*cleared, *again))
    ]
    if cleared or again:
        # A damaged file would stop the run only after the cleared stages were deleted.
        for stage in done:
            folder.check(stage)
    if len(done) < len(stages):
        run.load()
        other = images.changed(run.data, config, fingerprint)
        if begun and other:
            raise RunFailed(
                f"The {other} of {config.dataset} are not those that {folder.path} was trained on.",
                hint=("model_dir", "fresh"),
            )
        fingerprint = run.data.fingerprints
        images.check(run.data, config, [stage for stage in stages if stage not in done])
        summary, *more = images.described(run.data)
        run.reporter.note(summary)
        for line in more:
            run.reporter.note(line, important=True)
        of_data = images.facts(run.data, config)
    # In reverse order: if the process is killed, no stage outlives one that it depends on.
    for stage in reversed(cleared):
        folder.clear(stage)
    folder.tidy(stages)
    folder.save(config, fingerprint, saved.get("run") if begun else uuid.uuid4().hex, of_data)


def _refuse_another_model(run, saved):
    """Raise if the folder holds files of another model."""
    name, folder = run.config.family.name, run.folder
    model = saved["config"].get("model", name) if saved else name
    if model != name and folder.contents():
        raise RunFailed(f"{folder.path} holds a model {model!r}, not {name!r}.", hint="model_dir")


def _refuse_differences(run, saved, begun):
    """Raise if settings of a started stage differ; those of later stages may change."""
    family, folder = run.config.family, run.folder
    sections = {stage.section for stage in begun}
    differences = run.config.differences(RunConfig.from_dict(family, saved))
    held = {
        name: values
        for name, values in differences.items()
        if name.partition(".")[0] in sections or ("." not in name and begun)
    }
    if held:
        shown = "; ".join(f"{name}: {old!r} -> {new!r}" for name, (new, old) in held.items())
        raise RunFailed(
            f"{folder.path} was trained with other settings ({shown}).",
            hint=("model_dir", f"stage_fresh:{_first_stage(run.config.stages, held)}"),
        )


def _first_stage(stages, held):
    """Return the first stage that must start over for these settings to change."""
    changed = {name.partition(".")[0] for name in held}
    of_changed = [stage.name for stage in stages if stage.section in changed]
    return of_changed[0] if all("." in name for name in held) else stages[0].name


def follow(run):
    """Check that every process has the chief's settings and images; raise where one does not."""
    who, config = f"Worker {run.distribution.worker}", run.config
    settings = run.distribution.from_chief(config.to_dict())
    if run.is_chief:
        return
    other = "another model"
    if settings["model"] == config.family.name:
        chief = RunConfig.from_dict(config.family, settings)
        config.adopt(chief)
        other = listing(config.differences(chief))
    if other:
        raise RunFailed(f"{who} has other settings than the chief: {other}.")
    saved = run.folder.saved()
    if saved is None:
        raise RunFailed(f"{who} does not see the chief's files in {run.folder.path}.")
    run.load()
    other = images.changed(run.data, config, saved["fingerprint"])
    if other:
        raise RunFailed(f"The {other} of {who.lower()} are not those of the chief.")
