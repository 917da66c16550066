"""How far each iteration of routing moves its logits, as in the 2017 paper's appendix."""

from keras import ops


def coupling_changes(router, x, each=False):
    """Mean over images, inputs and outputs of how far an iteration moves a logit, |b_t - b_(t-1)|.

    The logits b_0 before the first iteration are zero. What grows is still undecided, or with
    agreements that add up still sharpening; what falls to nothing has settled.

    Args:
        router: `Router`, for instance `RoutingLayer.router()`; of shared weights
            `router(inputs=I)`. Without a routing bias.
        x: Tensor (B, I, D), capsules.
        each: bool, whether each image has its own mean, so that those of batches can be joined.

    Returns:
        Tensor (iterations,), none negative; of each image (B, iterations).

    Raises:
        ValueError: If the router has no iterations.

    Examples:

    >>> layer = RoutingLayer(5, 4, iterations=3)
    >>> x = keras.random.uniform((2, 6, 8), seed=0)
    >>> layer(x).shape
    TensorShape([2, 5, 4])
    >>> coupling_changes(layer.router(), x).shape
    TensorShape([3])

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Appendix A
    """
    logits = router.all_logits(x)
    if not logits:
        raise ValueError(
            "`router` must have at least one iteration, which could change something. "
            "Received: iterations=0"
        )
    before = [ops.zeros_like(logits[0]), *logits[:-1]]
    moved = [ops.mean(ops.abs(b - a), axis=(1, 2)) for a, b in zip(before, logits)]
    return ops.stack(moved, axis=1) if each else ops.stack([ops.mean(move) for move in moved])
