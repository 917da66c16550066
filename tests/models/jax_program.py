"""Trains models that move their own variables, from fixed weights, on the backend at hand.

On Jax, run in a process of its own: writes what they become, beside what single steps make of
them, which move variables one by one and are not compiled.

Usage: KERAS_BACKEND=jax python tests/models/jax_program.py FILE NAME ...
"""

import sys

import keras
import numpy as np

import keras_capsule_poe as capsules

IMAGES, BATCH, EPOCHS = 20, 8, 2


def numbers(*shape):
    return np.random.default_rng(1).uniform(-0.4, 0.4, size=(IMAGES, *shape)).astype("float32")


def neurons(*shape):
    return (numbers(*shape) > 0).astype("float32")


def experts(number, dim):
    return capsules.CapsulePoE(
        number, dim, implementation="reference", use_routing_bias=True, use_bias=True,
        activation_prior_weight=1.0, routing_iterations=2,
    )  # fmt: skip


def boltzmann(**options):
    machine = capsules.RestrictedBoltzmannMachine(3)
    return capsules.HarmoniumModel(machine, persistent_chains=4, **options)


# Models and what they are fitted to; some draw noise, which is another one on each backend.
CERTAIN = {
    "encoder": lambda: (
        capsules.CapsuleEncoder(experts(5, 3), load_balancing=0.03), (numbers(6, 4),)
    ),
    "decoder": lambda: (capsules.CapsuleDecoder(experts(6, 4)), (numbers(5, 3), numbers(6, 4))),
    "mixture": lambda: (
        capsules.NeuronMixtureExperts(capsules.NeuronMixture(3, 3)), (numbers(6, 4),),
    ),
    "autoencoder": lambda: (
        capsules.ConvAutoencoder(filters=3, kernel_size=5, dropout=0.0),
        (numbers(20, 20, 1) + 0.5,),
    ),
}  # fmt: skip
NOISY = {
    "persistent": lambda: (boltzmann(algorithm="pcd"), (neurons(6),)),
    "tempered": lambda: (boltzmann(algorithm="pt", temperatures=3), (neurons(6),)),
    "neurons": lambda: (
        capsules.NeuronExperts(
            capsules.NeuronPoE(3, 3, use_routing_bias=True, implementation="reference"),
            load_balancing=0.1,
        ),
        (neurons(6, 4),),
    ),
}


def begun(name):
    """A model of weights that are the same wherever it begins, compiled; and its data."""
    model, data = (CERTAIN | NOISY)[name]()
    model.build((None, *data[0].shape[1:]))
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(random.normal(scale=0.3, size=variable.shape))
    rate = keras.optimizers.schedules.CosineDecay(0.1, 10)
    loss = "binary_crossentropy" if name == "autoencoder" else None
    model.compile(keras.optimizers.SGD(rate, momentum=0.5), loss, jit_compile="auto")
    return model, data


def found(model, logs):
    """All numbers of a model that has been trained."""
    variables = [*model.variables, *model.optimizer.variables]
    arrays = {str(k): np.asarray(variable.value) for k, variable in enumerate(variables)}
    return arrays | {name: np.asarray(value) for name, value in logs.items()}


def fitted(name):
    """What `fit` makes of a model, and `evaluate` of that."""
    model, data = begun(name)
    options = {"batch_size": BATCH, "verbose": 0}
    history = model.fit(*data, epochs=EPOCHS, shuffle=False, **options).history
    logs = {f"{key} {k}": value for key, kept in history.items() for k, value in enumerate(kept)}
    told = model.evaluate(*data, return_dict=True, **options)
    return found(model, logs | {f"told {key}": value for key, value in told.items()})


def step_by_step(name):
    """The same by steps that move the variables themselves."""
    model, data = begun(name)
    model.optimizer.build(model.trainable_variables)
    batches = [tuple(x[k : k + BATCH] for x in data) for k in range(0, IMAGES, BATCH)]
    logs = {}
    for epoch in range(EPOCHS):
        model.reset_metrics()
        for batch in batches:
            last = model.train_step(batch)
        logs |= {f"{key} {epoch}": value for key, value in last.items()}
    model.reset_metrics()
    for batch in batches:
        last = model.test_step(batch)
    return found(model, logs | {f"told {key}": value for key, value in last.items()})


def main(path, *names):
    arrays = {}
    for name in names:
        cases = {"": fitted(name)}
        if name in NOISY:
            cases["by step "] = step_by_step(name)
        arrays |= {f"{name}/{how}{k}": a for how, of in cases.items() for k, a in of.items()}
    np.savez(path, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
