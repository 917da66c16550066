"""The three ways in which public capsule code computes votes, applied to the same routing.

Written anew for comparison: two-operand einsum, tile-multiply-reduce, and map_fn over the batch.
Routing is cosine over the inputs as in Hauser (2019), or dot over the outputs as in Sabour et
al. (2017); a divergence step follows Hauser's Algorithm 1. Shapes as in the library: x
(B, I, D), kernel (I, J, E, D), votes (B, I, J, E); any batch size.
"""

import tensorflow as tf

TINY = 1e-30


def squash(z):
    square = tf.reduce_sum(tf.square(z), axis=-1, keepdims=True)
    return z * tf.sqrt(square) / (1.0 + square)


def damped(z):
    return z / (1.0 + tf.reduce_sum(tf.square(z), axis=-1, keepdims=True))


def unit(z):
    return z * tf.math.rsqrt(tf.reduce_sum(tf.square(z), axis=-1, keepdims=True) + TINY)


class Einsum:
    """Each sum an einsum of two operands."""

    def votes(self, x, kernel):
        return tf.einsum("bid,ijed->bije", x, kernel)

    def collective(self, c, votes):
        return tf.einsum("bij,bije->bje", c, votes)

    def agreement(self, votes, z):
        return tf.einsum("bije,bje->bij", votes, z)

    def backproject(self, c, kernel, y):
        return tf.einsum("bij,bijd->bid", c, tf.einsum("bje,ijed->bijd", y, kernel))

    def correlation(self, c, y, x):
        return tf.einsum("bije,bid->ijed", tf.einsum("bij,bje->bije", c, y), x)


class Tile:
    """The inputs repeated for every output, multiplied by the maps entry by entry, and summed."""

    def votes(self, x, kernel):
        outputs, out_dim = kernel.shape[1:3]
        tiled = tf.tile(x[:, :, None, None, :], (1, 1, outputs, out_dim, 1))
        return tf.reduce_sum(kernel[None] * tiled, axis=-1)

    def collective(self, c, votes):
        return tf.reduce_sum(c[..., None] * votes, axis=1)

    def agreement(self, votes, z):
        tiled = tf.tile(z[:, None], (1, votes.shape[1], 1, 1))
        return tf.reduce_sum(votes * tiled, axis=-1)

    def backproject(self, c, kernel, y):
        tiled = tf.tile((c[..., None] * y[:, None])[..., None], (1, 1, 1, 1, kernel.shape[-1]))
        return tf.reduce_sum(kernel[None] * tiled, axis=(2, 3))

    def correlation(self, c, y, x):
        tiled = tf.tile(x[:, :, None, None, :], (1, 1, y.shape[1], y.shape[2], 1))
        return tf.reduce_sum((c[..., None] * y[:, None])[..., None] * tiled, axis=0)


class MapFn:
    """Votes of one image after another, the rest as batched products."""

    def votes(self, x, kernel):
        # (I, J, E, D) times (I, 1, D, 1)
        return tf.map_fn(lambda one: tf.matmul(kernel, one[:, None, :, None])[..., 0], x)

    def collective(self, c, votes):
        c, votes = tf.transpose(c, (0, 2, 1)), tf.transpose(votes, (0, 2, 1, 3))
        return tf.matmul(c[:, :, None, :], votes)[:, :, 0]

    def agreement(self, votes, z):
        products = tf.matmul(tf.transpose(votes, (0, 2, 1, 3)), z[..., None])[..., 0]
        return tf.transpose(products, (0, 2, 1))

    def backproject(self, c, kernel, y):
        maps = tf.reshape(kernel, (kernel.shape[0], -1, kernel.shape[-1]))

        def one(pair):
            weighted = pair[0][..., None] * pair[1][None]  # (I, J, E)
            flat = tf.reshape(weighted, (kernel.shape[0], 1, -1))
            return tf.matmul(flat, maps)[:, 0]

        return tf.map_fn(one, (c, y), fn_output_signature=y.dtype)

    def correlation(self, c, y, x):
        weighted = tf.transpose(c[..., None] * y[:, None], (1, 2, 3, 0))  # (I, J, E, B)
        flat = tf.reshape(weighted, (x.shape[1], y.shape[1] * y.shape[2], -1))
        sums = tf.matmul(flat, tf.transpose(x, (1, 0, 2)))
        return tf.reshape(sums, (x.shape[1], y.shape[1], y.shape[2], x.shape[2]))


FORMS = {"einsum": Einsum(), "tile": Tile(), "map_fn": MapFn()}
# Copies of the votes, about, that a divergence step holds at its peak, from trials.
COPIES = {"einsum": 5, "tile": 26, "map_fn": 6}


def route_attention(form, x, kernel, bias):
    """Coefficients (B, I, J) and sums (B, J, E) of self-attention routing, Mazzia et al. (2021)."""
    votes = form.votes(x, kernel)
    logits = form.agreement(votes, tf.reduce_sum(votes, axis=1)) / kernel.shape[2] ** 0.5
    c = tf.nn.softmax(logits, axis=2) + bias
    return c, form.collective(c, votes)


def route_cosine(form, x, kernel, iterations):
    """Coefficients (B, I, J) and collectives (B, J, E), the softmax over the inputs."""
    votes = form.votes(x, kernel)
    units = unit(votes)
    logits = tf.zeros_like(votes[..., 0])
    c = tf.nn.softmax(logits, axis=1)
    z = form.collective(c, votes)
    for _ in range(iterations):
        logits += form.agreement(units, unit(z))
        c = tf.nn.softmax(logits, axis=1)
        z = form.collective(c, votes)
    return c, z


def route_dot(form, x, kernel, iterations):
    """Coefficients (B, I, J) and collectives (B, J, E), the softmax over the outputs."""
    votes = form.votes(x, kernel)
    logits = tf.zeros_like(votes[..., 0])
    c = tf.nn.softmax(logits, axis=2)
    z = form.collective(c, votes)
    for _ in range(iterations):
        logits += form.agreement(votes, squash(z))
        c = tf.nn.softmax(logits, axis=2)
        z = form.collective(c, votes)
    return c, z


def divergence_step(form, x, kernel, iterations):
    """Cosine routing and one step of contrastive divergence: gradient, x~, z and z~."""
    c, z = route_cosine(form, x, kernel, iterations)
    x_model = squash(form.backproject(c, kernel, squash(z)))
    z_model = form.collective(c, form.votes(x_model, kernel))
    data = form.correlation(c, damped(z), x)
    model = form.correlation(c, damped(z_model), x_model)
    return 2.0 * (data - model) / tf.cast(tf.shape(x)[0], x.dtype), x_model, z, z_model
