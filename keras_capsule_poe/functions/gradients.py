"""Functions that bring their gradient with them, on every backend."""

import keras
from keras import ops


def custom_gradient(function):
    """`keras.ops.custom_gradient` of functions with several results.

    Keras hands the gradients in these to each backend in another way, and on Torch one only.

    Args:
        function: Of tensors to a tuple of tensors and a function, which takes a gradient in each
            of these and gives a sequence of those in the arguments. Not twice differentiable.

    Returns:
        A function of the same arguments to the tuple.

    Examples:

    >>> @custom_gradient
    ... def halves(x):
    ...     return (x / 2, x / 2), lambda first, second: [(first + second) / 2]
    >>> [float(half) for half in halves(ops.ones(()))]
    [0.5, 0.5]
    """
    if keras.backend.backend() == "torch":
        return _on_torch(function)

    @ops.custom_gradient
    def differentiable(*arguments):
        results, gradient = function(*arguments)

        def flat(*upstream):
            return gradient(*keras.tree.flatten(upstream)[-len(results) :])

        return results, flat

    return differentiable


def _on_torch(function):
    import torch
    from torch.autograd.function import once_differentiable

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(context, *arguments):
            results, context.gradient = function(*arguments)
            return results

        @staticmethod
        @once_differentiable
        def backward(context, *upstream):
            return tuple(context.gradient(*upstream))

    return Function.apply
