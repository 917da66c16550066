"""Routing and contrastive divergence, in blocks and without storing the votes.

The same functions as in `routing` and `divergence`, and the same results; `blocks` says how the
sums over pairs of capsules are taken. Three identities save work:

- The first coefficients are the same for all inputs: one plain product gives the collective.
- Agreements add up over the iterations: after t of them the logits are votes . (sum of the
  earlier collectives' directions), so that one small sum is carried and not the logits.
- The lengths of the votes, which the cosine divides by, depend on x and W alone.

A few images are taken at a time, so that memory grows with neither the batch nor the votes.
"""

from functools import reduce

from keras import ops

from keras_capsule_poe.functions.blocks import Cosines, PairSums, over_images
from keras_capsule_poe.functions.divergence import Divergence, damped
from keras_capsule_poe.functions.energy import log_odds
from keras_capsule_poe.functions.norms import at_least_float32, direction
from keras_capsule_poe.functions.routing import Routing, check_routing_options
from keras_capsule_poe.functions.squash import squash


def route(x, kernel, **options):
    """Routing by agreement: `routing.route`, with the same arguments and results.

    Args:
        x: Tensor (B, I, D), input capsules.
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
        **options: See `routing.route`.

    Returns:
        `Routing(coefficients, z)`, of shapes (B, I, J) and (B, J, E).

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Procedure 1
    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1
    """
    x, kernel, pairs = _prepared(x, kernel)
    router = _router(pairs, **options)

    def step(x, _):
        c, z = router(pairs.lay_inputs(x))
        return [pairs.unlay_coefficients(c), pairs.unlay_outputs(z)], []

    inputs, outputs, out_dim, _ = kernel.shape
    shapes = [(inputs, outputs), (outputs, out_dim)]
    return Routing(*over_images(step, [x], pairs.images_at_once(), shapes, [])[0])


def encoder_divergence(x, kernel, coefficients):
    """One step of contrastive divergence: `divergence.encoder_divergence`.

    Args:
        x: Tensor (B, I, D), squashed primary capsules.
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
        coefficients: Tensor (B, I, J), routing coefficients, the same in every pass.

    Returns:
        `Divergence`: gradient (I, J, E, D), reconstruction (B, I, D), z and z~ (B, J, E).

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), Algorithm 1 and Equation 18
    """
    x, kernel, pairs = _prepared(x, kernel)

    def step(x, coefficients, weight):
        x, c = pairs.lay_inputs(x), pairs.lay_coefficients(coefficients)
        return _encoder_step(pairs, x, c, pairs.collective(c, x), weight)

    return _encoder_results(pairs, kernel, step, [x, ops.cast(coefficients, x.dtype)])


def routed_encoder_divergence(x, kernel, **options):
    """Routing and one step of contrastive divergence at once, the coefficients never whole.

    `encoder_divergence(x, kernel, route(x, kernel, **options).coefficients)` with less work.

    Args:
        x: Tensor (B, I, D), squashed primary capsules.
        kernel: Tensor (I, J, E, D), prediction maps W_ij.
        **options: See `routing.route`.

    Returns:
        `Divergence`: gradient (I, J, E, D), reconstruction (B, I, D), z and z~ (B, J, E).
    """
    x, kernel, pairs = _prepared(x, kernel)
    router = _router(pairs, **options)

    def step(x, weight):
        x = pairs.lay_inputs(x)
        c, z = router(x)
        return _encoder_step(pairs, x, c, z, weight)

    return _encoder_results(pairs, kernel, step, [x])


def decoder_divergence(x, z, kernel, coefficients):
    """One step of contrastive divergence for the decoder: `divergence.decoder_divergence`.

    Args:
        x: Tensor (B, J, E), squashed expert capsules of the data.
        z: Tensor (B, I, D), primary capsules of the data, before the squash.
        kernel: Tensor (J, I, D, E), decoder maps U_ji.
        coefficients: Tensor (B, J, I), routing coefficients e_ji.

    Returns:
        `Divergence`: gradient (J, I, D, E), reconstruction (B, J, E), z, and z~ (B, I, D).

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), training of the decoder
    """
    x, kernel, pairs = _prepared(x, kernel)

    def step(x, z, coefficients, weight):
        x, c = pairs.lay_inputs(x), pairs.lay_coefficients(coefficients)
        return _decoder_step(pairs, x, z, c, pairs.collective(c, x), weight)

    return _decoder_results(pairs, kernel, step, [x, z, ops.cast(coefficients, x.dtype)])


def routed_decoder_divergence(x, z, kernel, **options):
    """Routing and one step of contrastive divergence for the decoder at once.

    `decoder_divergence(x, z, kernel, route(x, kernel, **options).coefficients)` with less work.

    Args:
        x: Tensor (B, J, E), squashed expert capsules of the data.
        z: Tensor (B, I, D), primary capsules of the data, before the squash.
        kernel: Tensor (J, I, D, E), decoder maps U_ji.
        **options: See `routing.route`.

    Returns:
        `Divergence`: gradient (J, I, D, E), reconstruction (B, J, E), z, and z~ (B, I, D).
    """
    x, kernel, pairs = _prepared(x, kernel)
    router = _router(pairs, **options)

    def step(x, z, weight):
        x = pairs.lay_inputs(x)
        c, z_model = router(x)
        return _decoder_step(pairs, x, z, c, z_model, weight)

    return _decoder_results(pairs, kernel, step, [x, z])


def _prepared(x, kernel):
    x, kernel = at_least_float32(x), at_least_float32(kernel)
    return x, kernel, PairSums(kernel)


def _router(
    pairs,
    iterations=3,
    temperature=1.0,
    normalize="inputs",
    kind="cosine",
    activation_prior=0.0,
    bias=None,
    scale=1.0,
):
    """The function that routes one slice of images: x to (list of c blocks, z), laid out."""
    check_routing_options(iterations, normalize, kind)
    cosines = Cosines(pairs) if kind == "cosine" else None
    axis = pairs.output_axis
    # Whether the softmax runs along the rows of a block, or from block to block.
    within = (normalize == "inputs") == pairs.inputs_are_many

    def router(x):
        total = pairs.total(x)
        offset = ops.zeros((pairs.outputs,)) if bias is None else bias
        offset = ops.cast(offset, total.dtype)
        equal = ops.ones_like(offset) / pairs.inputs
        shares = equal if normalize == "inputs" else ops.softmax(offset)
        shares, offset = scale * pairs.per_output(shares), pairs.per_output(offset)
        z = total * ops.expand_dims(shares, axis)
        agreement = cosines.of(x) if cosines else lambda y: pairs.agreement(y, x)
        c = None if iterations else pairs.equal_blocks(shares, x)
        pull = 0.0
        for _ in range(iterations):
            pull = pull + temperature * (direction(z, axis) if cosines else squash(z, axis))
            logits = agreement(pull)
            if normalize == "outputs":  # over the inputs, these cancel
                prior = pairs.output_blocks(activation_prior * log_odds(z, axis) + offset)
                logits = [block + p for block, p in zip(logits, prior)]
            c = _softmax(logits, within, scale)
            z = pairs.collective(c, x)
        return c, z

    return router


def _softmax(blocks, within, scale):
    """scale * softmax of a list of (group, B, M): along M within blocks, or over all blocks."""
    if within:
        return [scale * ops.softmax(block, axis=-1) for block in blocks]
    largest = reduce(ops.maximum, [ops.max(block, axis=0) for block in blocks])
    powers = [ops.exp(block - largest) for block in blocks]
    share = scale / sum(ops.sum(power, axis=0) for power in powers)
    return [power * share for power in powers]


def _encoder_step(pairs, x, c, z, weight):
    """One slice of images: (x~, z, z~) as they came and the sum that makes the gradient."""
    y = squash(z, axis=pairs.output_axis)
    x_model = squash(pairs.backproject(c, y), axis=pairs.input_axis)
    z, z_model = pairs.unlay_outputs(z), pairs.unlay_outputs(pairs.collective(c, x_model))
    data = pairs.correlation(c, _pull(pairs, z, weight), x)
    model = pairs.correlation(c, _pull(pairs, z_model, weight), x_model)
    return [pairs.unlay_inputs(x_model), z, z_model], [data - model]


def _decoder_step(pairs, x, z, c, z_model, weight):
    x_model = squash(pairs.backproject(c, z_model), axis=pairs.input_axis)
    z_model = pairs.unlay_outputs(z_model)
    data = pairs.correlation(c, _pull(pairs, z, weight), x)
    model = pairs.correlation(c, _pull(pairs, z_model, weight), x_model)
    return [pairs.unlay_inputs(x_model), z_model], [data - model]


def _pull(pairs, z, weight):
    """z/(1+|z|^2) of outputs (B, J, E), laid out; zero for images of weight zero."""
    return pairs.lay_outputs(damped(z) * weight[:, :, None])


def _encoder_results(pairs, kernel, step, arrays):
    inputs, outputs, out_dim, in_dim = kernel.shape
    shapes = [(inputs, in_dim), (outputs, out_dim), (outputs, out_dim)]
    results, sums = over_images(step, arrays, pairs.images_at_once(), shapes, [pairs.flat_shape])
    return Divergence(_mean(pairs, sums[0], arrays[0]), *results)


def _decoder_results(pairs, kernel, step, arrays):
    inputs, outputs, out_dim, in_dim = kernel.shape
    shapes = [(inputs, in_dim), (outputs, out_dim)]
    results, sums = over_images(step, arrays, pairs.images_at_once(), shapes, [pairs.flat_shape])
    x_model, z_model = results
    return Divergence(_mean(pairs, sums[0], arrays[0]), x_model, arrays[1], z_model)


def _mean(pairs, difference, x):
    """Twice the mean over images of a sum over them, as a gradient of the kernel's shape."""
    return pairs.unlay_kernel(difference) * (2 / ops.cast(ops.shape(x)[0], difference.dtype))
