"""Training and export of a product of expert neurons.

A stage takes a `Run`, writes files and returns metrics.
"""

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.families.features import build as features
from keras_capsule_poe.families.features import stored
from keras_capsule_poe.families.features.stages import SHOWN, export_model
from keras_capsule_poe.families.neurons import build
from keras_capsule_poe.families.neurons.top_section import has_top
from keras_capsule_poe.families.neurons.visits import settle_shares, visits
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.training.figures import figures
from keras_capsule_poe.training.soundness import complain, worse_than_mean


def experts(run):
    """Train the expert neurons, then record their states on the training images."""
    config = run.config
    primary = stored.load_primary(run)
    train = stored.features(run, "train")
    model = build.build_experts(config, primary.capsules)
    build.start_maps(
        config,
        model.machine,
        lambda rows: map_batches(primary.to_capsules, train[rows]),
        len(train),
    )
    model.compile(features.optimizer(config, "experts", len(train)), jit_compile=False)
    new = stored.features(run, "held_out")
    seen, held_out = (map_batches(primary.to_capsules, maps) for maps in (train[: len(new)], new))
    images = stored.load_model(run, "autoencoder")
    at_once = config["experts"].batch_size

    def after_epoch():
        known, new = (figures(model, v, at_once) for v in (seen, held_out))
        return {
            "held_out_free_energy": new["free_energy"],
            "free_energy_gap": new["free_energy"] - known["free_energy"],
            "held_out_relative_error": new["loss"],
        }

    def picture(path):
        v = held_out[:SHOWN]
        rows = (v, model.machine.reconstruct(v))
        save_grid(path, [images.decode(primary.from_capsules(row)) for row in rows])

    def stream(**order):
        return stored.primary_batches(primary.to_capsules, train, **order)

    schedule = features.schedule(config, "experts")
    last = run.fit("experts", model, stream, schedule, after_epoch, picture)
    if config["experts"].routing == "mixture":
        settle_shares(model.machine, primary.to_capsules, train)
    found = visits(model, primary.to_capsules, train, config["experts"].remembered)
    model.machine.mean_coefficients.assign(found.pop("coefficients"))
    stored.save_arrays(run, "experts/visited.npz", **found)
    stored.save_model(run, "experts", model)
    won = [round(float(share), 4) for share in found["shares"]]
    wrong = worse_than_mean(held_out, last["held_out_relative_error"])
    return {**last, "won": won, **complain(run, "experts", wrong)}


def export(run):
    """Export the whole product for Keras and as a SavedModel, and draw its images."""
    parts = (
        stored.as_float32(stored.load_model(run, "autoencoder")),
        stored.load_primary(run),
        stored.load_model(run, "experts"),
    )
    top = stored.load_model(run, "top") if has_top(run.config) else None
    model = build.build_product(run.config, *parts, top)
    found = stored.load_arrays(run, "experts/visited.npz")
    model.visited.assign(found["visited"])
    model.shares.assign(found["shares"])
    return export_model(run, model)
