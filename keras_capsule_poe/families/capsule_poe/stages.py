"""The stages of a run: autoencoder, features, encoder (W), decoder (U), export.

Each takes a `Run`, leaves its results in the run's folder and returns what it measured.
"""

import shutil

import numpy as np

from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.families.capsule_poe import build, parts, visited
from keras_capsule_poe.families.capsule_poe.starts import starting_images
from keras_capsule_poe.generation.grids import capsule_grid, reconstruction_grid
from keras_capsule_poe.io.files import beside
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.models.capsule_poe.product import DOMAINS
from keras_capsule_poe.serving.saved_model import export_saved_model
from keras_capsule_poe.training import optimizers
from keras_capsule_poe.training.config import schedule
from keras_capsule_poe.training.fitting import fit

# Enough held-out images for a stable mean; more would only cost time.
MONITORED = 512
SHOWN = 12


def autoencoder(run):
    """Trains the convolutional autoencoder on the images."""
    config, options, data = run.config, run.config.autoencoder, run.data
    model = build.build_autoencoder(config, data.image_shape)
    epochs, steps = schedule(options, len(data.train))
    # XLA makes large convolutions many times slower on a CPU.
    model.compile(
        optimizers.for_autoencoder(options, epochs * steps),
        "binary_crossentropy",
        jit_compile=False,
    )
    held_out = to_pixels(data.test.images[:MONITORED])

    def after_epoch():
        decoded = model.predict(held_out, batch_size=options.batch_size, verbose=0)
        return {"held_out_relative_error": parts.relative_error(decoded, held_out)}

    def picture(path):
        shown = held_out[:SHOWN]
        save_grid(path, [shown, model.predict(shown, verbose=0)])

    def stream(first_epoch):
        return batches(data.train.images, **_order(run, options, first_epoch, epochs))

    history = _fit(run, "autoencoder", model, stream, (epochs, steps), after_epoch, picture)
    _save(run, "autoencoder", model)
    return history[-1]


def features(run):
    """Computes the feature maps once, as float16 on disk, and adapts the primary capsules."""
    model = parts.load_part(run, "autoencoder")
    folder = run.stage_folder("features")
    for name, images in (("train", run.data.train.images), ("test", run.data.test.images)):
        with beside(folder / f"{name}.npy") as temporary:
            parts.write_features(temporary, model, images)
    primary = build.build_primary(run.config, model.feature_shape)
    stored = parts.features(run, "train")
    primary.adapt(stored[start : start + 500] for start in range(0, len(stored), 500))
    with beside(folder / "primary.npz", suffix=".npz") as temporary:
        np.savez(temporary, mean=primary.mean.numpy(), gain=primary.feature_gain.numpy())
    return {"feature_gain": float(primary.feature_gain.numpy())}


def encoder(run):
    """Trains the expert capsules by contrastive divergence, then records what they visit."""
    config, options = run.config, run.config.encoder
    primary = parts.load_primary(run)
    train = parts.features(run, "train")
    epochs, steps = schedule(options, len(train))
    model = build.build_encoder(config, primary.capsules)
    if options.start != "noise":
        rows = starting_images(
            lambda chosen: parts.to_primary(primary, train[chosen]),
            *(len(train), options.capsules, options.dim, options.start, config.seed),
        )
        model.start_from_images(parts.to_primary(primary, train[rows]), options.image_length)
    model.compile(optimizers.for_capsules(options, epochs * steps), jit_compile=False)
    seen, held_out = (
        parts.to_primary(primary, parts.features(run, name)[:MONITORED])
        for name in ("train", "test")
    )
    autoencoder = parts.load_part(run, "autoencoder")

    def after_epoch():
        known, new = (
            model.evaluate(x, batch_size=options.batch_size, verbose=0, return_dict=True)
            for x in (seen, held_out)
        )
        return {
            "held_out_free_energy": new["free_energy"],
            "free_energy_gap": new["free_energy"] - known["free_energy"],
            "held_out_relative_error": new["loss"],
        }

    def picture(path):
        x = held_out[:SHOWN]
        rows = (x, model.experts.mean_field_step(x))
        save_grid(path, [autoencoder.decode(primary.to_features(row)) for row in rows])

    def stream(first_epoch):
        return parts.primary_batches(primary, train, **_order(run, options, first_epoch, epochs))

    history = _fit(run, "encoder", model, stream, (epochs, steps), after_epoch, picture)
    codes = _record_visits(run, model, visited.experts_of(model, primary, train))
    _save(run, "encoder", model)
    return {**history[-1], "capsules": visited.usage(codes)}


def _record_visits(run, model, z):
    """Frames of the experts, and what is known of their codes, written beside the encoder."""
    options, folder = run.config.encoder, run.stage_folder("encoder")
    if options.frames:
        visited.adapt_frames(model, z)
    codes = visited.codes_of(model, z)
    visits = {"mean_direction": visited.mean_directions(codes)}
    for name, mixture in (
        ("visited", visited.visited_mixtures(codes, options.visited_components, run.config.seed)),
        (
            "joint",
            visited.joint_mixture(
                codes, options.joint_components, options.joint_rank, run.config.seed
            ),
        ),
    ):
        visits |= {f"{name}_{part}": array.astype("float32") for part, array in mixture.items()}
    with beside(folder / "codes.npy", suffix=".npy") as temporary:
        np.save(temporary, codes)
    with beside(folder / parts.VISITS_FILE, suffix=".npz") as temporary:
        np.savez(temporary, **visits)
    return codes


def decoder(run):
    """Trains the maps from expert capsules back to primary capsules, the encoder frozen."""
    config, options = run.config, run.config.decoder
    primary = parts.load_primary(run)
    train = parts.features(run, "train")
    codes = np.load(run.stage_folder("encoder") / "codes.npy")
    epochs, steps = schedule(options, len(train))
    model = build.build_decoder(config, primary.capsules)
    model.compile(optimizers.for_capsules(options, epochs * steps), jit_compile=False)
    product = parts.assemble(run, primary, model)
    held_out = parts.to_primary(primary, parts.features(run, "test")[:MONITORED])
    held_out_codes = map_batches(product.encoder, held_out)

    def after_epoch():
        decoded = model.predict(held_out_codes, batch_size=options.batch_size, verbose=0)
        return {"held_out_relative_error": parts.relative_error(decoded, held_out)}

    def picture(path):
        original = product.from_primary(held_out[:SHOWN])
        decoded = product.decode(held_out_codes[:SHOWN])["images"]
        single = product.sample(SHOWN, seed=0, domain="visited")["images"]
        save_grid(path, [original, decoded, single])

    def stream(first_epoch):
        return parts.primary_batches(
            primary, (codes, train), **_order(run, options, first_epoch, epochs)
        )

    history = _fit(run, "decoder", model, stream, (epochs, steps), after_epoch, picture)
    _save(run, "decoder", model)
    return history[-1]


def export(run):
    """Assembles the product, saves it for Keras and as a SavedModel, and draws its grids."""
    product = parts.assemble(run, parts.load_primary(run), parts.load_part(run, "decoder"))
    with beside(run.folder / parts.MODEL_FILE, suffix=".keras") as temporary:
        product.save(temporary)
    metrics = {
        name: run.metrics(name) for name in ("autoencoder", "features", "encoder", "decoder")
    }
    version = export_saved_model(product, run.folder, run.config.to_dict(), metrics)
    shown = to_pixels(run.data.test.images[:SHOWN])
    save_grid(run.folder / "reconstructions.png", reconstruction_grid(product, shown))
    for domain in DOMAINS:
        rows = capsule_grid(product, rows=4, domain=domain, seed=run.config.seed)
        save_grid(run.folder / f"samples-{domain}.png", rows)
    for name in ("train", "test"):
        (run.stage_folder("features") / f"{name}.npy").unlink(missing_ok=True)
    return {"saved_model": version.name}


def _fit(run, stage, model, stream, length, after_epoch, picture):
    epochs, steps = length
    return fit(
        model,
        stream,
        stage=stage,
        folder=run.stage_folder(stage),
        epochs=epochs,
        steps=steps,
        reporter=run.reporter,
        after_epoch=after_epoch,
        picture=lambda name: picture(run.folder / "pictures" / name),
    )


def _order(run, options, first_epoch, epochs):
    """What decides which images come when: seed and epoch alone."""
    return {
        "batch_size": options.batch_size,
        "seed": run.config.seed,
        "first_epoch": first_epoch,
        "epochs": epochs,
    }


def _save(run, stage, model):
    """Saves a finished model; its checkpoints are then of no use."""
    folder = run.stage_folder(stage)
    with beside(folder / parts.MODEL_FILE, suffix=".keras") as temporary:
        model.save(temporary)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
