"""Random numbers that depend on a seed and a counter, and on nothing that a run accumulates."""

import keras
from keras import ops


class StatelessSeed(keras.random.SeedGenerator):
    """A seed generator without state: every draw uses the pair (seed, counter).

    The state of an ordinary `SeedGenerator` is neither saved with the weights nor different
    between replicas. With (seed, step) instead a resumed run draws what an uninterrupted one
    draws, and a SavedModel takes its seed as an input.

    Args:
        seed: int or scalar integer tensor.
        counter: int or scalar integer tensor, for instance the training step.

    Examples:

    >>> one, same = (keras.random.normal((3,), seed=StatelessSeed(7, 2)) for _ in range(2))
    >>> bool(ops.all(one == same))
    True
    """

    def __init__(self, seed, counter=0):
        # No call of the base: it would make a variable.
        dtype = "int64" if keras.backend.backend() == "tensorflow" else "uint32"
        self.pair = ops.stack([ops.cast(seed, dtype), ops.cast(counter, dtype)])

    def next(self, ordered=True):
        return self.pair

    def later(self, counts):
        """The seed whose counter is larger by `counts`."""
        return StatelessSeed(self.pair[0], self.pair[1] + ops.cast(counts, self.pair.dtype))


def split(seed, number):
    """Pairs (number, 2) that make as many independent streams of one seed.

    Args:
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.
        number: int.

    Returns:
        int32 tensor (number, 2), non-negative.
    """
    if not isinstance(seed, keras.random.SeedGenerator):
        seed = StatelessSeed(seed)
    return keras.random.randint((number, 2), 0, 2**31 - 1, seed=seed)


def streams(seed, number):
    """So many independent streams of one seed, as seed generators.

    Args:
        seed, number: See `split`.

    Returns:
        List of `StatelessSeed`.

    Examples:

    >>> one, other = (keras.random.normal((3,), seed=stream) for stream in streams(7, 2))
    >>> bool(ops.all(one == other))
    False
    """
    pairs = split(seed, number)
    return [StatelessSeed(pairs[k, 0], pairs[k, 1]) for k in range(number)]


def draw_index(logits, seed):
    """One index of each row, drawn with the probabilities of its softmax.

    Args:
        logits: Tensor (..., K).
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.

    Returns:
        int32 tensor (...).

    Examples:

    >>> int(draw_index(ops.convert_to_tensor([-1e9, 0.0]), seed=0))
    1
    """
    if not isinstance(seed, keras.random.SeedGenerator):
        seed = StatelessSeed(seed)
    return index_of(logits, index_noise(ops.shape(logits), logits.dtype, seed))


def index_noise(shape, dtype, seed):
    """What is random in `draw_index` of logits of a shape: uniform numbers above zero."""
    return keras.random.uniform(shape, 1e-30, 1.0, dtype=dtype, seed=seed)


def index_of(logits, noise):
    """The index of each row that `index_noise` draws: the largest of logits with Gumbel noise.

    Args:
        logits, noise: Tensors (..., K).

    Returns:
        int32 tensor (...).
    """
    return ops.cast(ops.argmax(logits - ops.log(-ops.log(noise)), axis=-1), "int32")


def step_seed(seed, step):
    """The seed of one step of a chain, a scalar integer tensor.

    Args:
        seed: int or scalar integer tensor.
        step: int or scalar integer tensor, which step it is.

    Examples:

    >>> int(step_seed(7, 1)) == int(step_seed(7, 1)) != int(step_seed(7, 2))
    True
    """
    return keras.random.randint((), 0, 2**31 - 1, seed=StatelessSeed(seed, step))
