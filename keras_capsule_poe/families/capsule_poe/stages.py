"""Training and export of a product of expert capsules, after its features.

A stage takes a `Run`, writes files and returns metrics.
"""

from keras_capsule_poe.data import sequential_batches
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.families.capsule_poe import build
from keras_capsule_poe.families.capsule_poe.codes import usage
from keras_capsule_poe.families.capsule_poe.stored import assemble
from keras_capsule_poe.families.features import build as features
from keras_capsule_poe.families.features import stored
from keras_capsule_poe.families.features.stages import SHOWN, export_model
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.metrics import relative_error
from keras_capsule_poe.training.figures import figures
from keras_capsule_poe.training.soundness import complain, saturated, worse_than_mean


def encoder(run):
    """Train the expert capsules by contrastive divergence, then record their codes."""
    config = run.config
    primary = stored.load_primary(run)
    train = stored.features(run, "train")
    model = build.build_encoder(config, primary.capsules)
    # Trace each graph once, since both are called many times.
    to_primary, one_step = compiled(primary), compiled(model.experts.mean_field_step)

    def x_of(rows):
        return stored.primary_of(to_primary, train[rows])

    build.build_start(config).apply(model.experts, x_of, len(train), config.seed)
    model.compile(features.optimizer(config, "encoder", len(train)), jit_compile=False)
    new = stored.features(run, "held_out")
    seen, held_out = (stored.primary_of(to_primary, maps) for maps in (train[: len(new)], new))
    images = stored.load_model(run, "autoencoder")
    at_once = config["encoder"].batch_size

    def after_epoch():
        known, new = (figures(model, x, at_once) for x in (seen, held_out))
        return {
            "held_out_free_energy": new["free_energy"],
            "free_energy_gap": new["free_energy"] - known["free_energy"],
            "held_out_relative_error": new["loss"],
            "held_out_probability_mean": new["probability_mean"],
        }

    def picture(path):
        x = held_out[:SHOWN]
        rows = (x, one_step(x))
        save_grid(path, [images.decode(primary.to_features(row)) for row in rows])

    def stream(**order):
        return stored.primary_batches(primary, train, **order)

    schedule = features.schedule(config, "encoder")
    last = run.fit("encoder", model, stream, schedule, after_epoch, picture)

    def z_of(maps):
        return model.experts.route(primary(maps)).z

    description = build.build_description(config)
    z = stored.rows_meanwhile(run, "encoder/z.npy", z_of, train)
    description.turn(model, z, x_of)
    stored.save_rows(run, "encoder/codes.npy", model.frames, z)
    codes = stored.load_rows(run, "encoder/codes.npy")
    visits = description.describe(codes, config.seed)
    stored.save_arrays(run, "encoder/visited.npz", **visits)
    stored.save_model(run, "encoder", model)
    found = worse_than_mean(held_out, last["held_out_relative_error"])
    found += saturated(last["held_out_probability_mean"])
    return {**last, "capsules": usage(codes), **complain(run, "encoder", found)}


def decoder(run):
    """Train the maps from expert capsules to primary capsules, with the encoder frozen."""
    config = run.config
    primary = stored.load_primary(run)
    train = stored.features(run, "train")
    codes = stored.load_rows(run, "encoder/codes.npy")
    model = build.build_decoder(config, primary.capsules)
    model.compile(features.optimizer(config, "decoder", len(train)), jit_compile=False)
    product = assemble(run, primary, model)
    held_out = stored.primary_of(primary, stored.features(run, "held_out"))
    held_out_codes = map_batches(product.encoder, held_out)
    at_once = config["decoder"].batch_size

    def after_epoch():
        decoded = model.predict(sequential_batches(held_out_codes, at_once), verbose=0)
        return {"held_out_relative_error": float(relative_error(decoded, held_out))}

    def picture(path):
        original = product.from_visible(held_out[:SHOWN])
        decoded = product.decode(held_out_codes[:SHOWN])["images"]
        single = product.sample(len(original), seed=0, domain="visited")["images"]
        save_grid(path, [original, decoded, single])

    def stream(**order):
        return stored.primary_batches(primary, (codes, train), **order)

    schedule = features.schedule(config, "decoder")
    last = run.fit("decoder", model, stream, schedule, after_epoch, picture)
    stored.save_model(run, "decoder", model)
    found = worse_than_mean(held_out, last["held_out_relative_error"])
    return {**last, **complain(run, "decoder", found)}


def export(run):
    """Export the whole product for Keras and as a SavedModel, and draw its images."""
    primary, decoder = stored.load_primary(run), stored.load_model(run, "decoder")
    return export_model(run, assemble(run, primary, decoder))
