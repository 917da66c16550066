"""Functions with custom gradients on every backend."""

import keras
from keras import ops


def custom_gradient(function):
    """Wrap a function that returns (tuple of results, gradient); first derivatives only."""
    # Keras passes several upstream gradients differently on each backend, and Torch gets only one.
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
