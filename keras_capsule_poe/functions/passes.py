"""Gibbs steps between visible and hidden units, as contrastive divergence uses them."""

from keras import ops

from keras_capsule_poe.functions.latent_routing import LatentRouter
from keras_capsule_poe.functions.maps import DenseMaps
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.randomness import StatelessSeed, split
from keras_capsule_poe.functions.routing import Router
from keras_capsule_poe.functions.rows import current_rows
from keras_capsule_poe.functions.slices import over_images


class Passes:
    """Gibbs steps for a few images at a time, in the layout of the maps."""

    def __init__(self, maps, coefficients, hidden, visible, hidden_bias=None, visible_bias=None):
        self._maps, self._hidden, self._visible = maps, hidden, visible
        self._rows = self._whole = None
        self._laid = hidden.laid(maps.lay_outputs), visible.laid(maps.lay_inputs)
        is_router = isinstance(coefficients, (Router, LatentRouter))
        self._router = coefficients if is_router else None
        self._coefficients = None if self._router else coefficients
        self._is_latent = isinstance(coefficients, LatentRouter)
        if coefficients is None and not isinstance(maps, DenseMaps):
            raise ValueError(
                "`coefficients` must be a tensor or a Router: only DenseMaps do without. "
                "Received: coefficients=None"
            )
        if self._router and type(self._router.maps) is not type(maps):
            raise ValueError(
                "`coefficients` must be a Router over maps of the same kind. Received: a Router "
                f"over {type(self._router.maps).__name__}, and {type(maps).__name__}"
            )
        # A router with a hidden bias has already added it to the pre-activations.
        self._is_routed_bias = getattr(self._router, "hidden_bias", None) is not None
        if self._is_routed_bias:
            if hidden_bias is not None:
                raise ValueError(
                    "`hidden_bias` must be None beside a Router that has one. Received: both"
                )
            hidden_bias = self._router.hidden_bias
        self._biases = [
            None if bias is None else self.cast(bias) for bias in (hidden_bias, visible_bias)
        ]

    def cast(self, x):
        """Return `x` as a tensor of the maps' dtype."""
        return ops.cast(at_least_float32(x), self._maps.kernel.dtype)

    def seeds(self, seed, steps):
        """Return per step None, or seeds for hidden units, visible units and latent parents."""
        if seed is None:
            return [None] * steps
        for units in (self._hidden, self._visible):
            if not hasattr(units, "sample"):
                raise ValueError(
                    f"No p(x | z) is known of {type(units).__name__}, so that nothing can be "
                    f"drawn: use seed=None, the mean field. Received: seed={seed!r}"
                )
        each = 3 if self._is_latent else 2
        pairs = split(seed, each * steps)
        # A list, because a graph cannot iterate over a tensor.
        return [[pairs[each * step + k] for k in range(each)] for step in range(steps)]

    def check_chains(self, chains, x):
        """Raise ValueError if per-image coefficients do not fit the number of chains."""
        c, sizes = self._coefficients, {chains.shape[0], x.shape[0]}
        # A size may be unknown in a graph.
        if c is not None and len(c.shape) == 3 and len(sizes - {None}) > 1:
            raise ValueError(
                "`chains` must be as many as there are images where coefficients are given: each "
                f"chain keeps those of an image. Received: {chains.shape[0]} chains, "
                f"{x.shape[0]} images"
            )

    def all_at_once(self, x):
        """Use all images of `x` at once; their image numbers are then None."""
        self._whole = ops.shape(x)[: len(x.shape) - len(self._maps.input_shape)]

    def arrays(self, x, *more, of_batch=True):
        """Return the arrays that `over_images` slices; chains (not `of_batch`) have no shards."""
        images = ops.shape(x)[0]
        self._rows = current_rows(images) if of_batch else (0, images)
        c = [] if self._coefficients is None else [self.cast(self._coefficients)]
        if c and len(c[0].shape) == 2:
            c = [ops.broadcast_to(c[0][None], (ops.shape(x)[0], *c[0].shape))]
        # Image numbers start at one: padding of a slice has number zero.
        return [x, *more, *c, ops.arange(ops.shape(x)[0], dtype="int32") + 1]

    def start(self, x, *more):
        """Return inputs, coefficients, hidden pre-activations and image numbers."""
        *c, image = more
        x = self._maps.lay_inputs(x)
        if self._router:
            c, collectives = self._router.steps(x)
            z = collectives[-1]
            return x, c, z if self._is_routed_bias else self._with_bias(z, 0), image
        c = self._maps.lay_pairs(c[0]) if c else None
        return x, c, self._with_bias(self._maps.up(c, x), 0), image

    def step(self, c, z, seeds, image):
        """Return visible units, coefficients and hidden pre-activations after one Gibbs step."""
        x, y = self.states(c, z, seeds, image)
        if self._is_latent:
            c = self._parents(x, y, seeds, image)
        return x, c, self._with_bias(self._maps.up(c, x), 0)

    def sweep(self, c, x, seeds, image):
        """Return visible units, the hidden units that gave them, and parents given both."""
        x, y = self.states(c, self._with_bias(self._maps.up(c, x), 0), seeds, image)
        return x, y, self._parents(x, y, seeds, image)

    def _parents(self, x, y, seeds, image):
        if seeds is None:
            return self._router.given(x, y)
        pairs = self._maps.inputs, self._maps.outputs
        noise = self._own(self._router.noise, pairs, x.dtype, seeds[2], image)
        return self._router.given(x, y, noise)

    def down(self, c, z, seeds, image):
        """Return visible units, given the hidden pre-activations."""
        return self.states(c, z, seeds, image)[0]

    def states(self, c, z, seeds, image):
        """Return visible and hidden units, given the hidden pre-activations."""
        maps, (first, second) = self._maps, (None, None) if seeds is None else (seeds[0], seeds[1])
        hidden, visible = self._laid
        if seeds is None:
            y = hidden.mean(z, axis=maps.output_axis)
        else:
            noise = self._own(hidden.noise, maps.output_shape, z.dtype, first, image)
            y = hidden.drawn(z, maps.lay_outputs(noise))
        field = self._with_bias(maps.down(c, y), 1)
        if seeds is None:
            return visible.mean(field, axis=maps.input_axis), y
        noise = self._own(visible.noise, maps.input_shape, field.dtype, second, image)
        return visible.drawn(field, maps.lay_inputs(noise)), y

    def _own(self, draw, shape, dtype, seed, image):
        seed = StatelessSeed(seed[0], seed[1] + 1)
        if image is None:
            return draw((*self._whole, *shape), dtype, seed)
        # Draw for all images and select: the noise depends on neither slices nor shards.
        start, total = self._rows
        noise = draw((total, *shape), dtype, seed)
        return ops.take(noise, start + ops.maximum(image - 1, 0), axis=0)

    def _with_bias(self, z, side):
        bias = self._biases[side]
        if bias is None:
            return z
        return z + (self._maps.lay_inputs if side else self._maps.lay_outputs)(bias[None])

    def statistics(self, c, z, x, image, images):
        """Return the sums over images for the gradients, given z (B, J, E)."""
        return self.sums(c, self._hidden.pull(z), x, image, images)

    def sums(self, c, pull, x, image, images):
        """Return the sums over images for the gradients, given scores (B, J, E)."""
        pull = self.mean(pull, image, images)
        sums = list(self._maps.correlation(c, self._maps.lay_outputs(pull), x))
        if self._biases[0] is not None:
            sums.append(ops.sum(pull, axis=0))
        if self._biases[1] is not None:
            x = self.mean(self._maps.unlay_inputs(x), image, images)
            sums.append(ops.sum(x, axis=0))
        return sums

    def mean(self, rows, image, images):
        """Divide rows by the number of images; rows of padding become zero."""
        rows = (1 / images) * rows
        is_image = ops.reshape(image > 0, (-1,) + (1,) * (len(rows.shape) - 1))
        return ops.where(is_image, rows, ops.zeros_like(rows))

    def unlay(self, x, *z):
        """Return inputs and outputs in their original layout."""
        return [self._maps.unlay_inputs(x), *(self._maps.unlay_outputs(each) for each in z)]

    def over(self, step, outputs, x, *more, of_batch=True):
        """Run `step` on slices of all images; return per-image results and sums over images."""
        maps, arrays = self._maps, self.arrays(x, *more, of_batch=of_batch)
        shapes = [maps.input_shape] + outputs * [maps.output_shape]
        sums = [*maps.map_shapes, *(bias.shape for bias in self._biases if bias is not None)]
        return over_images(step, arrays, maps.images_at_once(), shapes, sums)

    def gradients(self, sums):
        """Return the gradients of the kernel and the two biases from sums over images."""
        blocks = len(self._maps.map_shapes)
        kernel, biases = self._maps.unlay_maps(sums[:blocks]), iter(sums[blocks:])
        biases = [None if bias is None else next(biases) for bias in self._biases]
        return kernel, *biases
