"""The stages of a restricted Boltzmann machine of images: its training, and the whole.

Each takes a `Run`, leaves its files in the run's folder and returns what it measured.
"""

import keras

from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.families.rbm import build
from keras_capsule_poe.generation.grids import reconstruction_rows, sample_rows
from keras_capsule_poe.io.files import beside
from keras_capsule_poe.io.pictures import save_grid

# Makes the classes known to Keras.
from keras_capsule_poe.models import ImageBoltzmannMachine
from keras_capsule_poe.serving.saved_model import export_saved_model

# Enough images for biases, and for a stable mean; and steps after which chains are the model's.
ADAPTED, MONITORED, SETTLED = 20_000, 1000, 1000
SHOWN, ROWS = 12, 4


def rbm(run):
    """Trains the machine by contrastive divergence."""
    config, data = run.config, run.data
    train, test = (part.images.reshape(len(part), -1) for part in (data.train, data.test))
    model = build.build_model(config, train.shape[1])
    some = to_pixels(train[:ADAPTED])
    model.adapt(some > 0.5 if build.binarize(config) == "threshold" else some)
    # XLA makes a step several times slower on a CPU.
    model.compile(build.optimizer(config, len(train)), jit_compile=False)
    seen, held_out = to_pixels(train[:MONITORED]), to_pixels(test[:MONITORED])

    def after_epoch():
        known, new = (
            model.evaluate(x, batch_size=MONITORED, verbose=0, return_dict=True)
            for x in (seen, held_out)
        )
        return {
            "free_energy_gap": new["free_energy"] - known["free_energy"],
            "held_out_relative_error": new["loss"],
        }

    def picture(path):
        shown = held_out[:SHOWN]
        rows = [shown, keras.ops.convert_to_numpy(model.machine.reconstruct(shown))]
        if config["rbm"].algorithm != "cd":
            rows.append(keras.ops.convert_to_numpy(model.particles[0, :SHOWN]))
        save_grid(path, [row.clip(0, 1).reshape(-1, *data.image_shape) for row in rows])

    last = run.fit(
        "rbm",
        model,
        lambda **order: batches(train, **order),
        build.schedule(config),
        after_epoch,
        picture,
    )
    with beside(run.path("rbm/model.keras"), suffix=".keras") as temporary:
        model.save(temporary)
    return last


def export(run):
    """Puts the whole together, saves it for Keras and as a SavedModel, and draws its grids."""
    config = run.config
    trained = keras.models.load_model(run.path("rbm/model.keras"), compile=False)
    model = build.build_whole(config, trained.machine, run.data.image_shape)
    model.particles.assign(trained.fantasies(config["rbm"].chains, SETTLED, config.seed))
    shown = reconstruction_rows(model, run.data.test.images[:SHOWN])
    with beside(run.path("model.keras"), suffix=".keras") as temporary:
        model.save(temporary)
    version = export_saved_model(model, run.folder.path, run.folder.card(config))
    save_grid(run.path("reconstructions.png"), list(shown.values()))
    save_grid(run.path("samples.png"), sample_rows(model, ROWS, config.seed))
    return {"saved_model": version.name}


def load(path):
    """The `ImageBoltzmannMachine` of a `model.keras`.

    Raises:
        ValueError: If the file holds another kind of model.
    """
    model = keras.models.load_model(path, compile=False)
    if not isinstance(model, ImageBoltzmannMachine):
        raise ValueError(f"it holds a {type(model).__name__}")
    return model
