"""What the benchmarks must show."""


def bars(results):
    """Each bar that the results speak of, as a row: what, measured, bar, holds.

    Args:
        results: Dict of the name of a benchmark to what it wrote, `rows` and more.
    """
    return [
        {
            "what": what,
            "measured": measured,
            "bar": f"{'at least' if at_least else 'at most'} {bar:g}",
            "holds": "yes" if (measured >= bar if at_least else measured <= bar) else "no",
        }
        for name, found in _FOUND.items()
        if name in results
        for what, measured, at_least, bar in found(results[name])
    ]


def _cd_step(result):
    rows, ours = result["rows"], _ours(result["rows"])
    paper = next(row for row in ours if (row["images"], row["inputs"]) == (128, 576))
    largest = next(row for row in ours if (row["images"], row["inputs"]) == (1024, 4608))
    yield (
        "CD step, 128 images: times faster than the best public form",
        paper["speedup_over_best"],
        True,
        5.0,
    )
    yield (
        "CD step, 128 images: share of the large-product rate",
        paper["share_of_product_rate"],
        True,
        0.12,
    )
    yield "CD step, 1024 images, 4608 inputs: extra MB", largest["extra_mb"], False, 1500.0
    yield "CD step: relative difference from public forms", _worst(rows, "error"), False, 1e-5


def _routing_layer(result):
    backward = [row for row in _ours(result["rows"]) if row["direction"] == "forward+backward"]
    yield (
        "RoutingLayer forward+backward: time over the best public form",
        _worst(backward, "time_ratio"),
        False,
        0.7,
    )
    yield (
        "RoutingLayer forward+backward: memory over the least public form",
        _worst(backward, "memory_ratio"),
        False,
        0.5,
    )
    yield (
        "RoutingLayer: relative difference from public forms",
        _worst(result["rows"], "error"),
        False,
        1e-5,
    )


def _growth(result):
    for growing in dict.fromkeys(row["growing"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["growing"] == growing]
        yield (
            f"Time over {growing}: exponent, first to last",
            rows[-1]["exponent_overall"],
            False,
            1.25,
        )
    beyond = max(row["extra_mb"] - row["arrays_mb"] for row in result["rows"])
    yield "Growth: extra MB beyond gradient and results, at most", beyond, False, 600.0


def _quality(result):
    for name, found in result["differences"].items():
        measured = found["mean_difference"] / found["seed_spread"]
        yield (
            f"Fast against plain, {name}: mean difference over seeds' deviation",
            measured,
            False,
            1.0,
        )


def _pipeline(result):
    total = result["rows"][-1]
    yield "capspoe train, 60,000 images: minutes", total["minutes_full"], False, 15.0
    if total["is_full"]:
        yield "capspoe train, 60,000 images: peak MB", total["peak_mb"], False, 4000.0


_FOUND = {
    "cd_step": _cd_step,
    "routing_layer": _routing_layer,
    "growth": _growth,
    "quality": _quality,
    "pipeline": _pipeline,
}


def _ours(rows):
    return [row for row in rows if row["form"] == "ours"]


def _worst(rows, key):
    return max(row[key] for row in rows if row.get(key) is not None)
