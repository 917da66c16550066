"""What the benchmarks must show.

A bar binds if it does not depend on the processor: a ratio to public forms in the same run, of
time or of memory, a relative difference, or an exponent of growth. The others are reported: a
share of a product rate, megabytes and minutes are those of one machine.
"""

COLUMNS = "what measured bar binds holds".split()
REPORTED = {"binds": False}


def bars(results):
    """Each bar that the results speak of, as a row of `COLUMNS`.

    Args:
        results: Dict of the name of a benchmark to what it wrote, `rows` and more.
    """
    found = [row for name, of in _BARS.items() if name in results for row in of(results[name])]
    return [row for row in found if row["measured"] is not None]


def missed(rows, binds):
    """Which bars do not hold, of those that bind or of the others: a list of what they say."""
    wanted = _YES_NO[binds], _YES_NO[False]
    return [row["what"] for row in rows if (row["binds"], row["holds"]) == wanted]


def _cd_step(result):
    rows, ours = result["rows"], _ours(result["rows"])
    paper = next(row for row in ours if (row["images"], row["inputs"]) == (128, 576))
    largest = next(row for row in ours if (row["images"], row["inputs"]) == (1024, 4608))
    step = "CD step, 128 images:"
    yield _at_least(
        f"{step} times faster than the best public form", paper["speedup_over_best"], 5.0
    )
    yield _at_least(
        f"{step} share of the large-product rate", paper["share_of_product_rate"], 0.12, **REPORTED
    )
    yield _at_most(
        "CD step, 1024 images, 4608 inputs: extra MB", largest["extra_mb"], 1500.0, **REPORTED
    )
    yield _at_most("CD step: relative difference from public forms", _worst(rows, "error"), 1e-5)


def _routing_layer(result):
    rows = result["rows"]
    backward = [row for row in _ours(rows) if row["direction"] == "forward+backward"]
    layer = "RoutingLayer forward+backward:"
    yield _at_most(f"{layer} time over the best public form", _worst(backward, "time_ratio"), 0.7)
    yield _at_most(
        f"{layer} memory over the least public form", _worst(backward, "memory_ratio"), 0.5
    )
    yield _at_most(
        "RoutingLayer: relative difference from public forms", _worst(rows, "error"), 1e-5
    )


def _em_routing(result):
    rows = result["rows"]
    small = [row for row in rows if row["direction"] == "forward+backward" and row["types"] == 8]
    (paper,) = [row for row in small if (row["form"], row["iterations"]) == ("xla", 3)]
    layer = "EM routing, 3x3, forward+backward:"
    yield _at_most(f"{layer} time over the plain form", paper["time_ratio"], 1 / 3)
    yield _at_most(f"{layer} memory over the plain form", paper["memory_ratio"], 0.5)
    # Six make rounding a hundred times larger, in every form.
    three = [row for row in rows if row["iterations"] == 3]
    yield _at_most(
        "EM routing: relative difference from the plain form", _worst(three, "error"), 1e-5
    )


def _convolutions(result):
    rows = result["rows"]
    backward = [row for row in rows if row["direction"] == "forward+backward"]
    yield _at_most(
        "Large filters with gradients: time over the plain form", _worst(backward, "ratio"), 0.7
    )
    # Few points of large filters cost two digits.
    yield _at_most(
        "Large filters: relative difference from the plain form", _worst(rows, "error"), 1e-4
    )


def _growth(result):
    for growing in dict.fromkeys(row["growing"] for row in result["rows"]):
        last = [row for row in result["rows"] if row["growing"] == growing][-1]
        yield _at_most(
            f"Time over {growing}: exponent, first to last", last["exponent_overall"], 1.25
        )
    beyond = max(row["extra_mb"] - row["arrays_mb"] for row in result["rows"])
    yield _at_most(
        "Growth: extra MB beyond gradient and results, at most", beyond, 600.0, **REPORTED
    )


def _quality(result):
    for name, found in result["differences"].items():
        # Two seeds may agree to the last image.
        measured = found["mean_difference"] / max(found["seed_spread"], 1e-9)
        yield _at_most(
            f"Fast against plain, {name}: mean difference over seeds' deviation", measured, 1.0
        )


def _memory(result):
    rows, more = result["rows"], "Ten times the images: memory of a stage or of evaluation"
    yield _at_most(f"{more}, ratio", _worst(rows, "ratio"), 1.05)
    yield _at_most(f"{more}, MB", _worst(rows, "anon_mb"), 2000.0)
    shares = [row["step_share"] for row in rows if row.get("step_share")]
    yield _at_least("Images from a store: rate over that from memory", min(shares), 0.95)


def _pipeline(result):
    total, command = result["rows"][-1], "capspoe train, 60,000 images:"
    yield _at_most(f"{command} minutes", total["minutes_full"], 15.0, **REPORTED)
    if total["is_full"]:
        yield _at_most(f"{command} peak MB", total["peak_mb"], 4000.0, **REPORTED)


_BARS = {
    "cd_step": _cd_step,
    "routing_layer": _routing_layer,
    "em_routing": _em_routing,
    "convolutions": _convolutions,
    "growth": _growth,
    "quality": _quality,
    "memory": _memory,
    "pipeline": _pipeline,
}
_YES_NO = {True: "yes", False: "no"}


def _at_least(what, measured, bar, binds=True):
    holds = measured is not None and measured >= bar
    return _row(what, measured, f"at least {bar:g}", binds, holds)


def _at_most(what, measured, bar, binds=True):
    holds = measured is not None and measured <= bar
    return _row(what, measured, f"at most {bar:g}", binds, holds)


def _row(what, measured, bar, binds, holds):
    values = what, measured, bar, _YES_NO[binds], _YES_NO[holds]
    return dict(zip(COLUMNS, values))


def _ours(rows):
    return [row for row in rows if row["form"] == "ours"]


def _worst(rows, key):
    return max(row[key] for row in rows if row.get(key) is not None)
