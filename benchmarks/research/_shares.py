"""Shares of images that are named rightly: as figures of a row, as text, and compared."""

import numpy as np

from keras_capsule_poe.evaluation.classification import mcnemar, wilson_interval


def shares(name, right):
    """A share of images and which they are, as figures of a row.

    Examples:

    >>> shares("test", np.array([True, False, False, True]))
    {'test': 0.5, 'test_images': 4, 'test_right': '90'}
    """
    packed = np.packbits(right).tobytes().hex()
    return {name: float(np.mean(right)), f"{name}_images": len(right), f"{name}_right": packed}


def unpacked(figures, name):
    """Boolean (N,), of what `shares` gave.

    Examples:

    >>> unpacked(shares("test", np.array([True, False, True])), "test").tolist()
    [True, False, True]
    """
    bits = np.frombuffer(bytes.fromhex(figures[f"{name}_right"]), np.uint8)
    return np.unpackbits(bits)[: figures[f"{name}_images"]].astype(bool)


def share(figures, name):
    """A share with its 95% interval (Wilson), in percent, as text.

    Examples:

    >>> share({"test": 0.5, "test_images": 100}, "test")
    '50.00 (40.38 to 59.62)'
    """
    n = figures[f"{name}_images"]
    low, high = wilson_interval(round(figures[name] * n), n)
    return f"{100 * figures[name]:.2f} ({100 * low:.2f} to {100 * high:.2f})"


def spread(shares):
    """Mean and standard deviation of shares, in percent, as text.

    Examples:

    >>> spread([0.1, 0.2, 0.3]), spread([0.1])
    ('20.00 ± 10.00', '10.00')
    """
    deviation = f" ± {100 * np.std(shares, ddof=1):.2f}" if len(shares) > 1 else ""
    return f"{100 * np.mean(shares):.2f}{deviation}"


def table(columns, rows):
    """Markdown of rows of cells; numbers by their columns' formats.

    Examples:

    >>> print(table({"model": "", "minutes": ".1f"}, [("capsules", 2.25)]))
    | model | minutes |
    |---|---|
    | capsules | 2.2 |
    """
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = ("-" if x is None else format(x, how) for x, how in zip(row, columns.values()))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def comparison(figures, name, first="capsules"):
    """Lines of McNemar's test of the first model against each other one, seed by seed.

    Args:
        figures: dict of models of dicts by seed of figures.
        name: str, of which share.
        first: str, a model.
    """
    lines = []
    for other in figures:
        for seed in sorted(set(figures.get(first, {})) & set(figures[other])):
            if other == first:
                continue
            both = (unpacked(figures[model][seed], name) for model in (first, other))
            found = mcnemar(*both)
            lines.append(
                f"{name}, seed {seed}: {first} alone right {found['only_this_right']}, {other} "
                f"alone right {found['only_other_right']}, p = {found['p']:.2g} (McNemar)"
            )
    return "\n".join(lines)
