"""Change of the routing logits per iteration (Sabour et al., 2017, Appendix A)."""

from keras import ops


def coupling_changes(router, x, each=False):
    """Return the mean change |b_t - b_(t-1)|, (iterations,) or with `each` (B, iterations)."""
    logits = router.all_logits(x)
    if not logits:
        raise ValueError(
            "`router` must have at least one iteration, which could change something. "
            "Received: iterations=0"
        )
    before = [ops.zeros_like(logits[0]), *logits[:-1]]
    moved = [ops.mean(ops.abs(b - a), axis=(1, 2)) for a, b in zip(before, logits)]
    return ops.stack(moved, axis=1) if each else ops.stack([ops.mean(move) for move in moved])
