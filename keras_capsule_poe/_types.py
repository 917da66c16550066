"""Names for type annotations. They say what a value means, as most of them are of any type."""

from typing import Any, TypeAlias

# Tensor of any Keras backend, or an array or number that converts to one.
Tensor: TypeAlias = Any
# int, scalar integer tensor or `keras.random.SeedGenerator`.
Seed: TypeAlias = Any
# Layer or model, or its config as `keras.saving.serialize_keras_object` returns it.
Serializable: TypeAlias = Any
# Name, config or instance of a Keras initializer, regularizer or constraint; or None.
Identifier: TypeAlias = Any
