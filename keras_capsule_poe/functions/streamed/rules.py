"""Routing and contrastive divergence, in blocks and without storing the votes.

The same functions as in `routing` and `divergence`, and the same results; `blocks` says how the
sums over pairs of capsules are taken. Three identities save work:

- The first coefficients are the same for all inputs: one plain product gives the collective.
- Agreements add up over the iterations: after t of them the logits are votes . (sum of the
  earlier collectives' directions), so that one small sum is carried and not the logits.
- The lengths of the votes, which the cosine divides by, depend on x and W alone.

A few images are taken at a time, so that memory grows with neither the votes nor, beyond the
results, the batch. `route` has a gradient of its own, which recomputes instead of storing.
"""

from keras import ops, tree

from keras_capsule_poe.functions.divergence import Divergence, damped
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.routing import Routing, check_routing_options
from keras_capsule_poe.functions.squash import squash
from keras_capsule_poe.functions.streamed.blocks import PairSums, over_images
from keras_capsule_poe.functions.streamed.router import Numbers, Router


def route(x, kernel, **options):
    """Routing by agreement: `routing.route`, with the same arguments and results.

    Differentiable in x, the kernel, the temperature, the activation prior, the bias and the
    scale, through all iterations; not twice.

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
    x, kernel, numbers, fixed = _prepared(x, kernel, **options)

    @ops.custom_gradient
    def routed(x, kernel, *numbers):
        router = Router(PairSums(kernel), Numbers(*numbers), **fixed)
        c, *steps = router.all_images(x)

        def gradient(*upstream):
            in_c, in_z = tree.flatten(upstream)[-2:]
            return router.gradient(x, steps, in_c, in_z)

        return (c, steps[-1]), gradient

    return Routing(*routed(x, kernel, *numbers))


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
    x, kernel = at_least_float32(x), at_least_float32(kernel)
    pairs, factor = PairSums(kernel), _factor(x)

    def step(x, c):
        x, c = pairs.lay_inputs(x), pairs.lay_pairs(c)
        return _encoder_step(pairs, x, c, pairs.collective(c, x), factor)

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
    x, kernel, numbers, fixed = _prepared(x, kernel, **options)
    pairs, factor = PairSums(kernel), _factor(x)
    router = Router(pairs, numbers, **fixed)

    def step(x):
        x = pairs.lay_inputs(x)
        c, steps = router.slice_of_images(x)
        return _encoder_step(pairs, x, c, steps[-1], factor)

    return _encoder_results(pairs, kernel, step, [x])


def decoder_divergence(x, z, kernel, coefficients, conditional=False):
    """One step of contrastive divergence for the decoder: `divergence.decoder_divergence`.

    Args:
        x: Tensor (B, J, E), squashed expert capsules of the data.
        z: Tensor (B, I, D), primary capsules of the data, before the squash.
        kernel: Tensor (J, I, D, E), decoder maps U_ji.
        coefficients: Tensor (B, J, I), routing coefficients e_ji.
        conditional: bool, see `divergence.decoder_divergence`.

    Returns:
        `Divergence`: gradient (J, I, D, E), reconstruction (B, J, E), z, and z~ (B, I, D).

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11643), training of the decoder
    """
    x, kernel = at_least_float32(x), at_least_float32(kernel)
    pairs, factor = PairSums(kernel), _factor(x)

    def step(x, z, c):
        x, c = pairs.lay_inputs(x), pairs.lay_pairs(c)
        return _decoder_step(pairs, x, z, c, pairs.collective(c, x), factor, conditional)

    return _decoder_results(pairs, kernel, step, x, z, [ops.cast(coefficients, x.dtype)])


def routed_decoder_divergence(x, z, kernel, conditional=False, **options):
    """Routing and one step of contrastive divergence for the decoder at once.

    `decoder_divergence(x, z, kernel, route(x, kernel, **options).coefficients, conditional)`
    with less work.

    Args:
        x: Tensor (B, J, E), squashed expert capsules of the data.
        z: Tensor (B, I, D), primary capsules of the data, before the squash.
        kernel: Tensor (J, I, D, E), decoder maps U_ji.
        conditional: bool, see `divergence.decoder_divergence`.
        **options: See `routing.route`.

    Returns:
        `Divergence`: gradient (J, I, D, E), reconstruction (B, J, E), z, and z~ (B, I, D).
    """
    x, kernel, numbers, fixed = _prepared(x, kernel, **options)
    pairs, factor = PairSums(kernel), _factor(x)
    router = Router(pairs, numbers, **fixed)

    def step(x, z):
        x = pairs.lay_inputs(x)
        c, steps = router.slice_of_images(x)
        return _decoder_step(pairs, x, z, c, steps[-1], factor, conditional)

    return _decoder_results(pairs, kernel, step, x, z, [])


def _prepared(
    x,
    kernel,
    iterations=3,
    temperature=1.0,
    normalize="inputs",
    kind="cosine",
    activation_prior=0.0,
    bias=None,
    scale=1.0,
):
    """The arguments of `routing.route` as tensors, and those that are fixed by name."""
    check_routing_options(iterations, normalize, kind)
    x, kernel = at_least_float32(x), at_least_float32(kernel)
    no_prior = isinstance(activation_prior, (int, float)) and activation_prior == 0
    fixed = {
        "iterations": iterations,
        "normalize": normalize,
        "kind": kind,
        # Over the inputs the softmax cancels what is the same for all of them.
        "is_offset": normalize == "outputs" and not (no_prior and bias is None),
    }
    bias = ops.zeros((kernel.shape[1],)) if bias is None else bias
    numbers = Numbers(temperature, activation_prior, bias, scale)
    return x, kernel, Numbers(*(ops.convert_to_tensor(n, dtype=x.dtype) for n in numbers)), fixed


def _encoder_step(pairs, x, c, z, factor):
    """One slice of images: x~, z and z~ as they came, and the sums that make the gradient."""
    y = squash(z, axis=pairs.output_axis)
    x_model = squash(pairs.backproject(c, y), axis=pairs.input_axis)
    z, z_model = pairs.unlay_outputs(z), pairs.unlay_outputs(pairs.collective(c, x_model))
    gradient = _difference(pairs, c, (z, x), (z_model, x_model), factor)
    return [pairs.unlay_inputs(x_model), z, z_model], gradient


def _decoder_step(pairs, x, z, c, z_model, factor, conditional):
    """One slice of images: x~ and z~ as they came, and the sums that make the gradient."""
    laid_out, z_model = z_model, pairs.unlay_outputs(z_model)
    if conditional:
        # Both terms have the same inputs: one correlation of their difference.
        difference = pairs.lay_outputs(factor * (damped(z) - damped(z_model)))
        return [pairs.unlay_inputs(x), z_model], pairs.correlation(c, difference, x)
    x_model = squash(pairs.backproject(c, laid_out), axis=pairs.input_axis)
    gradient = _difference(pairs, c, (z, x), (z_model, x_model), factor)
    return [pairs.unlay_inputs(x_model), z_model], gradient


def _difference(pairs, c, data, model, factor):
    """c_ij (z_j x_i^T/(1+|z_j|^2) - z~_j x~_i^T/(1+|z~_j|^2)), summed over images, as maps."""
    data, model = (
        pairs.correlation(c, pairs.lay_outputs(factor * damped(z)), x) for z, x in (data, model)
    )
    return [d - m for d, m in zip(data, model)]


def _factor(x):
    """Twice the mean: what each image of x weighs in the gradient."""
    return 2 / ops.cast(ops.shape(x)[0], x.dtype)


def _encoder_results(pairs, kernel, step, arrays):
    inputs, outputs, out_dim, in_dim = kernel.shape
    shapes = [(inputs, in_dim), (outputs, out_dim), (outputs, out_dim)]
    at_once = pairs.images_at_once()
    results, maps = over_images(step, arrays, at_once, shapes, pairs.map_shapes)
    return Divergence(pairs.unlay_maps(maps), *results)


def _decoder_results(pairs, kernel, step, x, z, more):
    inputs, outputs, out_dim, in_dim = kernel.shape
    shapes, at_once = [(inputs, in_dim), (outputs, out_dim)], pairs.images_at_once()
    arrays = [x, ops.cast(z, x.dtype), *more]
    (x_model, z_model), maps = over_images(step, arrays, at_once, shapes, pairs.map_shapes)
    return Divergence(pairs.unlay_maps(maps), x_model, z, z_model)
