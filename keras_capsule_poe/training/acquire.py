"""Acquiring a folder for a run: settings, images and initial weights must be those of its files."""

import hashlib
import uuid

from keras_capsule_poe.errors import AnotherRun, RunFailed
from keras_capsule_poe.former_names import FORMER_DEFAULTS
from keras_capsule_poe.training import images

# What `run.json` says of the images.
_OF_DATA = ("preparation", "class_names", "data_path", "paths")


def acquire(run, model, cleared, again):
    """Acquire the folder for this run, or raise; then delete the stages that start over.

    Stages in `again` run again, but their files stay until they are replaced.
    """
    folder, settings, stages = run.folder, run.settings, run.stages
    if folder.is_foreign():
        raise RunFailed(f"{folder.path} holds files but no training run.", hint="model_dir")
    stays = [stage for stage in stages if stage not in cleared]
    saved = folder.saved()
    if saved and stays:
        saved = folder.readable()
    _refuse_another_model(run, saved)
    saved = saved or {}
    begun = [stage for stage in stays if folder.has_begun(stage)]
    for stage in begun:
        folder.check_run(stage)
    former = _adopt(run, saved["config"], begun) if begun else settings
    done = [
        stage
        for stage in stays
        if stage not in again and folder.is_done(stage, stages, (*cleared, *again))
    ]
    # A finished run needs them, too: other images must not give its model.
    run.load()
    if begun:
        _refuse_other_images(run, saved.get("fingerprint"))
    start = _checked_start(run, model, saved.get("start", {}), begun, done)
    longer = [stage for stage in _longer(run, former, begun) if stage in done]
    if cleared or again or longer:
        # A damaged file would stop the run only after the cleared stages were deleted.
        for stage in done:
            folder.check(stage)
    undone = done[done.index(longer[0]) :] if longer else []
    done = [stage for stage in done if stage not in undone]
    known = [stage for stage in saved.get("goes_on", ()) if stage in begun]
    run.goes_on = [stage for stage in stages if stage in (*longer, *known) and stage not in done]
    fingerprint = saved.get("fingerprint")
    facts = {name: saved[name] for name in _OF_DATA if name in saved}
    if len(done) < len(stages):
        fingerprint, facts = run.data.fingerprints, _described(run, done)
    # In reverse order: if the process is killed, no stage outlives one that it depends on.
    for stage in reversed(cleared):
        folder.clear(stage, is_last=stage == stages[-1])
    for stage in reversed(undone):
        folder.forget([stage])
    folder.tidy(stages)
    more = {name: value for name, value in (("start", start), ("goes_on", run.goes_on)) if value}
    number = saved.get("run") if begun else uuid.uuid4().hex
    folder.save(settings, fingerprint, number, {**facts, **more})


def _described(run, done):
    """Check and describe the images of a run that is not finished; return facts about them."""
    images.check(run.data, run.settings, [stage for stage in run.stages if stage not in done])
    summary, *more = images.described(run.data)
    run.reporter.note(summary)
    for line in more:
        run.reporter.note(line, important=True)
    return images.facts(run.data, run.settings)


def _refuse_other_images(run, fingerprint):
    """Raise if the images are not those that the stages of the folder were trained on."""
    other = images.changed(run.data, run.settings, fingerprint)
    if other:
        raise AnotherRun(
            f"The {other} of {run.settings.dataset} are not those that {run.folder.path} was "
            "trained on.",
            hint=("model_dir", "fresh"),
        )


def _checked_start(run, model, known, begun, done):
    """Return digests of the initial weights by stage; raise if begun stages had other ones.

    A model that has the weights of a finished stage may be trained in the same folder again.
    """
    mine = {stage: _digest(part) for stage, part in run.start.items()}
    for stage in begun:
        is_known = mine.get(stage) == known.get(stage)
        if not is_known and not (stage in done and model.has_part_of(run, stage)):
            raise AnotherRun(
                f"{run.folder.path} was trained from other initial weights than those of this "
                f"model ({stage}).",
                hint=("model_dir", "fresh"),
            )
    start = {**mine, **{stage: known.get(stage) for stage in begun}}
    return {stage: value for stage, value in start.items() if value}


def _digest(part):
    """Return a digest of a part's weights, and of which of them are trained."""
    found = hashlib.sha256(repr([weight.trainable for weight in part.weights]).encode())
    for value in part.get_weights():
        found.update(value.tobytes())
    return found.hexdigest()[:16]


def _refuse_another_model(run, saved):
    """Raise if the folder holds files of another model."""
    name, folder = run.settings.MODEL, run.folder
    model = saved["config"].get("model", name) if saved else name
    if model != name and folder.contents():
        raise RunFailed(f"{folder.path} holds a model {model!r}, not {name!r}.", hint="model_dir")


def _adopt(run, saved, begun):
    """Take over what started stages determine, and return their settings; raise if others differ.

    Settings of later stages may change, and the number of epochs of all of them.
    """
    settings, stages = run.settings, run.stages
    parts = {part for stage in begun for part in settings.STAGES[stage]}
    old = type(settings).from_dict(saved)
    settings.adopt(old, FORMER_DEFAULTS.get(settings.MODEL, {}), parts)
    lengths = {
        f"{name}.{key}"
        for name, part in settings.parts.items()
        if hasattr(part, "schedule")
        for key in ("epochs", "steps")
    }
    held = {
        name: values
        for name, values in settings.differences(old).items()
        if name not in lengths and ("." not in name or name.partition(".")[0] in parts)
    }
    if held:
        changed = {name.partition(".")[0] for name in held if "." in name}
        first = next((s for s in stages if changed & {*settings.STAGES[s]}), stages[0])
        first = first if all("." in name for name in held) else stages[0]
        raise _other_settings(run, held, first)
    return old


def _longer(run, former, begun):
    """Return the begun stages that have more steps than with the former settings.

    Raise if one has fewer.
    """
    images = len(run.data.train)
    now, before = (settings.steps(images) for settings in (run.settings, former))
    for stage in begun:
        if now.get(stage, 0) < before.get(stage, 0):
            steps = {f"steps of {stage}": (now[stage], before[stage])}
            raise _other_settings(run, steps, stage)
    return [stage for stage in begun if now.get(stage, 0) > before.get(stage, 0)]


def _other_settings(run, held, first):
    """Return the error of a folder whose settings (new, old) differ from stage `first` on."""
    shown = "; ".join(f"{name}: {now!r} -> {new!r}" for name, (new, now) in held.items())
    return AnotherRun(
        f"{run.folder.path} was trained with other settings ({shown}).",
        hint=("model_dir", f"stage_fresh:{first}"),
    )
