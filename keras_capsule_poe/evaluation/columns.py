"""Tables of runs side by side: one column for each model, runs of several seeds in one."""

import json
import os
import re

import numpy as np

from keras_capsule_poe import templates
from keras_capsule_poe.evaluation.baselines import BOLTZMANN, KINDS, VAE
from keras_capsule_poe.evaluation.report import blocks, cell, title
from keras_capsule_poe.training.progress import duration

# Facts that are rows if they differ.
_FACTS = ("model", "preset", "dataset")
# Metrics on held-out images that a short table has; of parts without them, it has `val_loss`.
_HELD_OUT = ("val_relative_error", "val_accuracy")
# Rows of metrics of test images that a short table has.
_SHORT = re.compile(
    r"reconstruction\.\w+|(probe|neighbours)\.\w+|clustering\.\w+\.accuracy|accuracy"
    r"|(views|pairs)\.\w+\.error|calibration\.\w+\.error"
    r"|samples\.(\w+)\.(confident|FID|precision|recall|coverage|purity|class_coverage)"
)
_NO_DRAWS = ("real", *KINDS, BOLTZMANN, VAE)


def columns(records):
    """Return the columns of `runs.records`, dicts: runs that differ only in the seed are one.

    Each has `name`, `folders`, `seeds`, `settings`, `seconds` and `metrics`. A metric has `mean`,
    `deviation` (None for one seed) and the number of `seeds` that have it.
    """
    groups = {}
    for record in records:
        facts = [record["settings"], *(record[name] for name in _FACTS)]
        key, copy = json.dumps(facts, sort_keys=True, default=str), 0
        # A second run of a seed is no further seed.
        while record["seed"] in [each["seed"] for each in groups.get((key, copy), ())]:
            copy += 1
        groups.setdefault((key, copy), []).append(record)
    found = [_column(group) for group in groups.values()]
    names = [column["name"] for column in found]
    for column in found:
        if names.count(column["name"]) > 1:
            column["name"] = ", ".join(column.pop("names"))
        column.pop("names", None)
    return found


def _column(group):
    names = [record["name"] for record in group]
    every = dict.fromkeys(name for record in group for name in record["metrics"])
    return {
        "name": _shared_name(names),
        "names": names,
        "folders": [record["folder"] for record in group],
        **{name: group[0][name] for name in _FACTS},
        "seeds": [record["seed"] for record in group],
        "unfinished": sum(not record["finished"] for record in group),
        "settings": group[0]["settings"],
        "seconds": _over([record["seconds"] for record in group]),
        "metrics": {
            name: _over([each["metrics"][name] for each in group if name in each["metrics"]])
            for name in every
        },
    }


def _over(values):
    """Return mean and deviation of numbers, which may be None."""
    known = [value for value in values if value is not None]
    return {
        "mean": float(np.mean(known)) if len(known) > 1 else known[0] if known else None,
        "deviation": float(np.std(known, ddof=1)) if len(known) > 1 else None,
        "seeds": len(known),
    }


def _shared_name(names):
    """Return the name of runs of several seeds.

    >>> _shared_name(["dim=16,seed=0", "dim=16,seed=1"]), _shared_name(["a1", "a12"])
    ('dim=16', 'a')
    """
    shared = os.path.commonprefix(names)
    if len(names) > 1:
        if any(name[len(shared) :][:1].isdecimal() for name in names):
            shared = shared.rstrip("0123456789")
        shared = re.sub(r"[-_,. ]*(seed)?[-_=,. ]*$", "", shared)
    return shared or ", ".join(names)


def columns_text(found, width=80, verbose=False, more=""):
    """Return columns as text: what they share, then tables of at most so many characters a line.

    `more` says how to see the metrics that only a `verbose` table has.
    """
    every = dict.fromkeys(name for column in found for name in column["metrics"])
    shown = [name for name in every if verbose or _is_short(name, every)]
    rows = [*_setting_rows(found), *_metric_rows(found, shown)]
    same = [str(found[0][name]) for name in _FACTS if name not in differing(found)]
    counted = f"{len(found)} model{'s' if len(found) > 1 else ''}"
    lines = [": ".join([counted, ", ".join(same)] if same else [counted])]
    if any(len(column["seeds"]) > 1 for column in found):
        lines.append("Runs that differ only in the seed share a column: mean ± standard deviation.")
    rows = [(f"  {row[0]}", *row[1:]) if row[1:] else row for row in rows]
    for some in blocks([column["name"] for column in found], rows, width):
        lines += ["", *some]
    if left := len(every) - len(shown):
        lines += ["", f"{left} more metrics: {more}"]
    return "\n".join(lines)


def _is_short(name, every):
    """Return whether a short table has a metric."""
    part, _, last = name.rpartition(".")
    if last == "val_loss":
        return not any(f"{part}.{better}" in every for better in _HELD_OUT)
    match = _SHORT.fullmatch(name)
    if not match:
        return last in _HELD_OUT
    return match[3] not in _NO_DRAWS and f"reconstruction.{match[3]}" not in every


def differing(found):
    """Return the facts and settings that differ between columns: lists of values by name."""
    given = dict.fromkeys(name for column in found for name in column["settings"])
    values = {name: [column[name] for column in found] for name in _FACTS}
    values |= {name: [column["settings"].get(name, "-") for column in found] for name in given}
    return {name: each for name, each in values.items() if len(set(map(str, each))) > 1}


def _setting_rows(found):
    """Return the rows of the settings that differ, and of the seeds."""
    rows = [
        (name, *("none" if value is None else str(value) for value in values))
        for name, values in differing(found).items()
    ]
    seeds = [sorted(column["seeds"]) for column in found]
    few = (
        ", ".join(map(str, each)) if len(each) < 4 else f"{each[0]} ... {each[-1]}"
        for each in seeds
    )
    rows.append(("seed", *few))
    if max(map(len, seeds)) > 1:
        rows.append(("number of seeds", *(str(len(each)) for each in seeds)))
    if any(column["unfinished"] for column in found):
        rows.append(("runs not finished", *(str(column["unfinished"]) for column in found)))
    rows.append(("training time", *(duration(column["seconds"]["mean"]) for column in found)))
    return [("Settings that differ" if len(rows) > 2 else "Settings",), *rows]


def _metric_rows(found, names):
    """Return the rows of metrics below their headings."""
    words = templates.words("tables.toml")
    sections = {}
    for name in names:
        first, _, rest = name.partition(".")
        heading, (text, *more) = words["columns"].get(first, title(first)), rest.split(".")
        text = ", ".join([title(text), *(word.replace("_", " ") for word in more)])
        if first == "samples" and "." in rest:
            kind, _, rest = rest.partition(".")
            heading, text = heading.format(kind.replace("_", " ")), title(rest)
        elif first not in words["notes"]:
            is_held_out = rest.startswith("val_")
            heading = words["columns"]["held_out" if is_held_out else "training"]
            text = f"{first}: {rest.removeprefix('val_').replace('_', ' ')}"
        cells = [_cell(column["metrics"].get(name), len(column["seeds"])) for column in found]
        sections.setdefault(heading, []).append((text or title(first), *cells))
    return [row for heading, rows in sections.items() for row in ((heading,), *rows)]


def _cell(value, seeds):
    """Return a metric of a column as text; it says if not all seeds have it."""
    if value is None or value["mean"] is None:
        return "-"
    text = cell(value["mean"])
    if value["deviation"] is not None:
        text = cell((value["mean"], value["deviation"]))
    return text if value["seeds"] == seeds else f"{text} ({value['seeds']} of {seeds})"
