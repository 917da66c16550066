"""Training of the autoencoder and computation of its features.

A stage takes a `Run`, writes files and returns metrics.
"""

from keras_capsule_poe.data import batches, sequential_batches
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.families.features import build, stored
from keras_capsule_poe.families.features.encoded import EncodedRows
from keras_capsule_poe.families.saved import save_whole
from keras_capsule_poe.generation.grids import reconstruction_rows, sample_rows
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.metrics import relative_error
from keras_capsule_poe.training.soundness import complain, worse_than_mean

SHOWN = 12


def autoencoder(run):
    """Train the convolutional autoencoder."""
    config, data = run.config, run.data
    model = build.build_autoencoder(config, data.image_shape)
    # XLA makes large convolutions many times slower on a CPU.
    model.compile(
        build.optimizer(config, "autoencoder", len(data.train)),
        "binary_crossentropy",
        jit_compile=False,
    )
    held_out = to_pixels(data.held_out.images)
    at_once = config["autoencoder"].batch_size

    def after_epoch():
        decoded = model.predict(sequential_batches(held_out, at_once), verbose=0)
        return {"held_out_relative_error": float(relative_error(decoded, held_out))}

    def picture(path):
        shown = held_out[:SHOWN]
        save_grid(path, [shown, model.predict_on_batch(shown)])

    def stream(**order):
        return batches(data.train.images, **order)

    schedule = build.schedule(config, "autoencoder")
    last = run.fit("autoencoder", model, stream, schedule, after_epoch, picture)
    stored.save_model(run, "autoencoder", model)
    found = worse_than_mean(held_out, last["held_out_relative_error"])
    return {**last, **complain(run, "autoencoder", found)}


def features(run):
    """Compute the feature maps, cached if the disk limit allows, and adapt the primary capsules."""
    model = stored.load_model(run, "autoencoder")
    data = run.data
    every = len(data.train) + len(data.held_out)
    stays = build.on_disk(run.config, model.feature_shape, every)
    for part, images in (("train", data.train.images), ("held_out", data.held_out.images)):
        stored.save_features(run, part, EncodedRows(model, images, run.distribution), stays)
    primary = build.build_primary(run.config, model.feature_shape)
    maps = stored.features(run, "train")
    primary.adapt(maps[start : start + 500] for start in range(0, len(maps), 500))
    gain = primary.feature_gain.numpy()
    stored.save_arrays(run, "features/primary.npz", mean=primary.mean.numpy(), gain=gain)
    return {"feature_gain": float(gain)}


def export_model(run, model):
    """Export the whole model for Keras and as a SavedModel, and draw its images."""
    # Parts that do not fit together fail here, before any file is replaced.
    shown = reconstruction_rows(model, run.data.test.images[:SHOWN])
    version = save_whole(run, model)
    save_grid(run.path("reconstructions.png"), list(shown.values()))
    for domain in model.MODES["single"].domains:
        rows = sample_rows(model, 4, run.config.seed, "single", domain)
        save_grid(run.path(f"samples-{domain}.png"), rows)
    return {"saved_model": version}
