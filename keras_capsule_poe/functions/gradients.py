"""Functions that bring their gradient with them, on every backend."""

import keras
from keras import ops


def custom_gradient(function):
    """`keras.ops.custom_gradient`, of a function with several results on Torch, too.

    Keras' own form hands Torch the gradient of one result only. Not twice differentiable there.

    Args:
        function: Of tensors to a tuple of tensors and a function: of the gradients in these to
            those in the arguments, a sequence.

    Returns:
        A function of the same arguments to the tuple.

    Examples:

    >>> @custom_gradient
    ... def halves(x):
    ...     return (x / 2, x / 2), lambda *upstream: [sum(keras.tree.flatten(upstream)[-2:]) / 2]
    >>> [float(half) for half in halves(ops.ones(()))]
    [0.5, 0.5]
    """
    if keras.backend.backend() != "torch":
        return ops.custom_gradient(function)
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
