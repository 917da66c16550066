"""An RBM of images: how it is trained, codes, samples, density and bounds on log Z."""

import math
from typing import TYPE_CHECKING, Any, Literal

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Serializable
from keras_capsule_poe.core.arguments import seed_given
from keras_capsule_poe.core.harmonium import gibbs_chain, gibbs_step
from keras_capsule_poe.core.likelihood import (
    Bracket,
    annealed_partition,
    annealing_schedule,
    draw_enumerated,
    enumerated_log_partition,
    reverse_annealed_partition,
)
from keras_capsule_poe.core.numerics import StatelessSeed, compiled, split, whole_number
from keras_capsule_poe.core.units import BinaryUnits
from keras_capsule_poe.data import batches
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.former_names import with_former_names
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.models.base.autoencoder import ConvAutoencoder
from keras_capsule_poe.models.base.features import (
    SHOWN,
    begin,
    build_autoencoder,
    compute_features,
    feature_maps,
    load_model,
    load_part,
    save_model,
    train_autoencoder,
)
from keras_capsule_poe.models.base.model import (
    TrainedModel,
    error_verdict,
    export_images,
    is_settings,
)
from keras_capsule_poe.models.base.protocols import (
    UNSET,
    Density,
    GenerativeModel,
    LikelihoodModel,
    Mode,
    build_once,
)
from keras_capsule_poe.models.boltzmann.layers import RestrictedBoltzmannMachine, binarization
from keras_capsule_poe.models.boltzmann.model import HarmoniumModel
from keras_capsule_poe.models.boltzmann.settings import BoltzmannSettings
from keras_capsule_poe.training.sanity import figures, warn, worse_than_mean

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from keras_capsule_poe._keywords import (
        AutoencoderSection,
        ImageBoltzmannMachineArguments,
        ImageBoltzmannMachinePreset,
    )

# Schedule of Salakhutdinov & Murray (2008): fractions of the steps up to each beta.
_PIECES = ((0.5, 500 / 14_500), (0.9, 4000 / 14_500))
# Gibbs steps from the persistent chains to the start of the reverse annealing.
_MIXED = 1000
# Rows per call.
BLOCK = 2048
# Number of images for the means of the independent neurons.
_FITTED = 10_000
# Images for the initial biases, and Gibbs steps for the chains to reach equilibrium.
ADAPTED, SETTLED = 6000, 1000
_VALUES = {
    "bernoulli": "binary visible neurons",
    "unit": "visible neurons in [0, 1], a density",
    "gaussian": "features, a density",
}


def free_energies(function, rows):
    """Return a free energy (N,) of rows or images as float64."""
    return map_batches(compiled(function), rows, BLOCK).astype("float64")


class HarmoniumDensity(Density):
    """p(v) of an `ImageBoltzmannMachine`; AIS starts at independent neurons fitted to images."""

    TEMPERATURES, CHAINS = 14_500, 100

    def __init__(self, model, images, seed=0):
        self._model, self._seed = model, seed
        how = {"stochastic": ", each drawn with its pixel as probability", None: ""}
        how = how.get(model.binarize, ", one where a pixel is above a half")
        neurons = model.chain_states.shape[-1]
        self.about = f"{neurons} {_VALUES[model.machine.visible]}{how}"
        self._base, _ = model.machine.independent(self._visible(images[:_FITTED]))

    def log_weights(self, images):
        """Return -F of the visible neurons of images (N,) in nats."""
        return -free_energies(self._model.machine.free_energy, self._visible(images))

    def exact(self):
        """Return log Z by enumeration, or None if no layer is small enough."""
        try:
            return enumerated_log_partition(self._harmonium())
        except ValueError:
            return None

    def bracket(self, temperatures, chains, seed):
        """Return the `Bracket` of log Z from forward and reverse annealing."""
        machine = self._harmonium()
        betas = schedule(temperatures)
        seeds = [int(part) for part in np.ravel(split(seed, 2))]
        forward = annealed_partition(machine, betas, chains, self._base, seeds[0])
        ends = self._draws(machine, chains, seeds[1])
        back = reverse_annealed_partition(machine, ends, betas, self._base, seeds[2])
        return Bracket(*forward[:2], *back[:2])

    def _draws(self, machine, chains, seed):
        try:
            return draw_enumerated(machine, chains, seed)
        except ValueError:
            # No exact draws: the upper bound is only as good as these chains.
            x = self._chain_states(chains)
        return compiled(lambda x: gibbs_chain(machine, x, _MIXED, seed)[0])(x)

    def _harmonium(self):
        return self._model.machine.harmonium()

    def _chain_states(self, chains):
        """Return the initial states of the reverse annealing's burn-in."""
        rows = np.arange(chains) % self._model.persistent_chains
        return self._model.machine.sent(ops.take(self._model.chain_states, rows, axis=0))

    def _visible(self, images):
        """Return visible neurons (N, D) of images as an array."""
        v = map_batches(compiled(self._model.to_visible), images, BLOCK)
        if self._model.binarize != "stochastic":
            return v
        drawn = np.random.default_rng(self._seed).uniform(size=v.shape)
        return (drawn < v).astype("float32")


def schedule(temperatures):
    """Return `temperatures` + 1 betas from zero to one, denser towards one."""
    pieces = [(beta, int(share * temperatures)) for beta, share in _PIECES]
    pieces = [(beta, number) for beta, number in pieces if number]
    rest = temperatures - sum(number for _, number in pieces)
    return annealing_schedule(*pieces, (1.0, rest))


def build_machine(settings, neurons):
    """Return the `HarmoniumModel` of a number of visible neurons, built but not compiled."""
    rbm = settings.rbm
    machine = RestrictedBoltzmannMachine(
        rbm.hidden,
        rbm.visible_units,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.01, seed=settings.seed),
        name="machine",
    )
    names = {"algorithm", "cd_steps", "persistent_chains", "temperatures", "weight_decay"}
    options = {**rbm.model_dump(include=names), "binarize": rbm.binarization}
    model = HarmoniumModel(machine, **options, seed=settings.seed, name="rbm")
    model.build((None, neurons))
    return model


def train_machine(run, with_machine):
    """Train the machine on pixels or features by contrastive divergence."""
    data, rbm = run.data, run.settings.rbm
    train, held_out = data.train.images, data.held_out.images
    if run.settings.has_features:
        train, held_out = (feature_maps(run, part) for part in ("train", "held_out"))
    neurons = math.prod(train.shape[1:])

    def flat(rows):
        return to_pixels(rows).reshape(len(rows), neurons)

    def stream(**order):
        return batches(train, **order).map(lambda x: ops.reshape(x, (-1, neurons)))

    model = build_machine(run.settings, neurons)
    whole, some = with_machine(run, model.machine), flat(train[:ADAPTED])
    if not begin(run, "rbm", model, model.machine):
        model.adapt(some > 0.5 if rbm.binarization == "threshold" else some)
    epochs, steps = rbm.schedule.over(len(train))
    rate = keras.optimizers.schedules.PolynomialDecay(
        rbm.learning_rate, epochs * steps, 0.01 * rbm.learning_rate
    )
    # XLA makes a step several times slower on a CPU.
    model.compile(keras.optimizers.SGD(rate, momentum=rbm.momentum), jit_compile=False)
    known, held_out = flat(train[: len(held_out)]), flat(held_out)

    def after_epoch():
        training, new = (figures(model, x, len(held_out)) for x in (known, held_out))
        return {
            "val_loss": new["loss"],
            "val_relative_error": new["loss"],
            "free_energy_gap": new["free_energy"] - training["free_energy"],
        }

    def picture(path):
        shown = held_out[:SHOWN]
        rows = [shown, model.machine.reconstruct(shown), model.fantasies(SHOWN, steps=1)]
        save_grid(path, [ops.convert_to_numpy(whole.from_visible(row)) for row in rows])

    def checkpoint():
        return with_chains(whole, model, run.settings)

    last = run.fit("rbm", model, stream, rbm.schedule, after_epoch, picture, whole=checkpoint)
    save_model(run, "rbm", model)
    mean = some.mean(axis=0)
    if rbm.binarization is not None:
        drawn = np.random.default_rng(0).uniform(size=held_out.shape)
        held_out = held_out > (0.5 if rbm.binarization == "threshold" else drawn)
        mean = (some > 0.5).mean(axis=0) if rbm.binarization == "threshold" else mean
    found = worse_than_mean(held_out, last["val_relative_error"], mean)
    return {**last, **warn(run, "rbm", found)}


def with_chains(model, trained, settings):
    """Return the model with chains of its trained `HarmoniumModel` that are in equilibrium."""
    chains = settings.rbm.persistent_chains
    states = compiled(lambda: trained.fantasies(chains, SETTLED, settings.seed))()
    model.chain_states.assign(states)
    return model


@keras.saving.register_keras_serializable("keras_capsule_poe")
@with_former_names
class ImageBoltzmannMachine(TrainedModel, LikelihoodModel, GenerativeModel, keras.Model):
    """Restricted Boltzmann machine of images, over pixels or autoencoder features.

    `fit(images)` trains it by contrastive divergence. Given a trained machine, the constructor
    wraps it instead. `binarize` and `persistent_chains` are settings of the training, too.

    A code is one capsule (B, 1, E): the probabilities `p(h = 1 | v)`, or drawn neurons. Gibbs
    sampling runs in float64. Rounding then cannot flip a neuron, and equal seeds give equal
    images on every machine.

    Args:
        machine: `RestrictedBoltzmannMachine`, trained, or its config.
        image_shape: (H, W, C).
        binarize: `"stochastic"` uses pixels as probabilities of visible neurons. Codes use these
            probabilities and likelihoods use draws. `"threshold"` sets pixels above 0.5 to one.
            `None` uses pixels or features as they are.
        autoencoder: `ConvAutoencoder`, trained, whose features are the visible neurons.
            `None`: pixels are the visible neurons.
        persistent_chains: int, number of stored visible states that start sampling.
        burn_in: int, Gibbs steps from a stored state to a sample.
        preset: String, a named set of settings: `"pixels"` (the default), `"small"` or
            `"features"`.
        **settings: Settings by name, such as `hidden=200` or `seed=1`; see `BoltzmannSettings`.
            Also `name` and `dtype` of `keras.Model`.

    Call arguments:
        images: Tensor (B, H, W, C), pixels in `[0, 1]`.

    Returns:
        Tensor (B, H, W, C), mean-field reconstructions.

    Raises:
        ValueError: If an argument has a wrong value.

    Example:

    >>> machine = RestrictedBoltzmannMachine(3)
    >>> model = ImageBoltzmannMachine(machine, (4, 4, 1), persistent_chains=2, burn_in=5)
    >>> model.build()
    >>> model.sample(6, seed=0)
    Samples(images: (6, 4, 4, 1), capsules: (6, 1, 3))

    Reference:

    - [Hinton, 2012](https://doi.org/10.1007/978-3-642-35289-8_32), practical guide
    """

    PARTS = ("machine", "autoencoder")
    NEEDED = ("machine",)
    PART_OF = {"rbm": "machine"}
    SETTINGS = BoltzmannSettings
    WHOLE = "rbm"
    TITLE = "Restricted Boltzmann machine"
    CHAINS = ("gibbs", "meanfield")
    CODES = "cube"
    modes = {"joint": Mode(note="Means of pixels given hidden neurons, drawn by Gibbs sampling.")}
    ENDPOINTS = {**GenerativeModel.ENDPOINTS, "gibbs": ("images", "steps", "seed")}
    # Arguments that are not Keras objects.
    _VALUES = ("image_shape", "binarize", "persistent_chains")

    def __init__(
        self,
        machine: Serializable | None = None,
        image_shape: tuple[int, int, int] | None = None,
        binarize: Literal["stochastic", "threshold"] | None = UNSET,
        autoencoder: "ConvAutoencoder | AutoencoderSection | None" = None,
        persistent_chains: int = UNSET,
        burn_in: int = 100,
        *,
        preset: "ImageBoltzmannMachinePreset" = None,
        **settings: "Unpack[ImageBoltzmannMachineArguments]",
    ) -> None:
        given = {"binarize": binarize, "persistent_chains": persistent_chains}
        given = {name: value for name, value in given.items() if value is not UNSET}
        values: dict[str, Any] = {**settings, **(given if machine is None else {})}
        # Serialized settings have their preset in them.
        if preset is None and not (autoencoder is None or is_settings(autoencoder)):
            preset = "features"
        self.burn_in = whole_number("burn_in", burn_in)
        is_config = isinstance(machine, dict)
        if not (machine is None or is_config or isinstance(machine, RestrictedBoltzmannMachine)):
            raise ValueError(
                f"`machine` must be a RestrictedBoltzmannMachine. Received: machine={machine!r}"
            )
        if not self.start({"machine": machine, "autoencoder": autoencoder}, preset, values):
            return
        if image_shape is None:
            raise TypeError("`image_shape` must be (H, W, C) if a machine is given.")
        self.image_shape = tuple(image_shape)
        self.binarize = binarization(given.get("binarize", "threshold"), self.machine)
        chains = given.get("persistent_chains", 100)
        self.persistent_chains = whole_number("persistent_chains", chains)
        if not self.has_settings:
            self.settings.rbm.persistent_chains = self.persistent_chains
            if self.machine.visible == "bernoulli":
                self.settings.rbm.binarize = self.binarize
        self.assemble()

    def train_parts(self, run):
        """Train the parts in turn; the run skips a finished part and resumes an interrupted one.

        1. If the visible neurons are features, an autoencoder learns to reproduce images, and its
           feature maps are kept.
        2. The machine learns the distribution of the visible neurons v by contrastive divergence
           with persistent chains.
        3. The chains reach equilibrium, and the model of all parts is written for Keras and as a
           SavedModel.
        """
        if run.settings.has_features:
            run.part("autoencoder", train_autoencoder)
            run.part("features", compute_features)
        run.part("rbm", lambda run: train_machine(run, self._with_machine))
        run.part("export", lambda run: export_images(run, self.from_parts(run)))

    @classmethod
    def from_parts(cls, run):
        trained = load_model(run, "rbm")
        return with_chains(cls._with_machine(run, trained.machine), trained, run.settings)

    @classmethod
    def _with_machine(cls, run, machine):
        """Return the model of a run and a machine, with persistent chains of zeros."""
        settings, autoencoder = run.settings, None
        if settings.has_features:
            autoencoder = load_part(run, "autoencoder")
        how = settings.rbm.binarization, autoencoder, settings.rbm.persistent_chains
        model = cls.made(run, machine, run.data.image_shape, *how)
        model.build()
        return model

    def values_of(self, stage, part):
        if stage != "rbm":
            return super().values_of(stage, part)
        if self.autoencoder is not None:
            return {"hidden": part.units, "visible": "features"}
        return {"hidden": part.units, "visible": "pixels", "neurons": part.visible}

    @classmethod
    def part_of(cls, run, stage):
        return load_model(run, stage).machine if stage == "rbm" else load_part(run, stage)

    @classmethod
    def outline(cls, settings, image_shape):
        shapes, parameters = {"image": tuple(image_shape)}, {}
        neurons, hidden = math.prod(image_shape), settings.rbm.hidden
        if settings.has_features:
            autoencoder = build_autoencoder(settings, image_shape)
            shapes["feature map"] = autoencoder.feature_shape
            parameters["autoencoder"] = autoencoder.count_params()
            neurons = math.prod(autoencoder.feature_shape)
        shapes |= {"visible neurons": (neurons,), "hidden neurons": (hidden,)}
        return shapes, {**parameters, "rbm": neurons * hidden + neurons + hidden}

    @staticmethod
    def verdict(metrics):
        error = metrics.get("rbm", {}).get("val_relative_error")
        return error_verdict(error, "Reconstructions")

    def adopt(self, trained):
        for name in self._VALUES:
            setattr(self, name, getattr(trained, name))
        super().adopt(trained)

    def assemble(self):
        self.capsules, self.dim = 1, self.machine.units

    @property
    def upper_bounds(self):
        return ("whole_code",) if self.autoencoder is None else ("autoencoder", "whole_code")

    @property
    def own_parameters(self):
        return self.machine.count_params()

    def neuron_values(self) -> Any:
        """Return the values (1, E) in a code of neurons that are off, and of those that are on."""
        return np.zeros((1, self.dim), "float32"), np.ones((1, self.dim), "float32")

    def build_parts(self, input_shape):
        if self.autoencoder is not None:
            build_once(self.autoencoder, (None, *self.image_shape))
        neurons = math.prod(self._feature_shape)
        build_once(self.machine, (None, neurons))
        shape = (self.persistent_chains, neurons)
        self.chain_states = self.add_weight(shape, "zeros", trainable=False, name="particles")

    def code(self, images, coefficients=None):
        """Return the hidden code of images (B, H, W, C); `coefficients` is ignored.

        Returns:
            dict: `capsules` (B, 1, E), `p(h = 1 | v)`; `probabilities` (B, 1), their mean;
            `free_energy` (B,), nats.
        """
        machine, x = self.machine.harmonium(), self.machine.sent(self.to_visible(images))
        z = machine.fields(x)
        p = BinaryUnits().mean(z)
        return {
            "capsules": p[:, None],
            "probabilities": ops.mean(p, axis=-1, keepdims=True),
            "free_energy": self.machine.free_energy_of(machine, x, z),
        }

    def render(self, capsules):
        """Return a dict with the mean `images` (B, H, W, C) given hidden neurons (B, 1, E)."""
        return {"images": self.from_visible(self.machine.decode(capsules[:, 0]))}

    def draw(self, n, seed, mode=None, domain=None):
        """Draw hidden neurons by Gibbs sampling from the stored states, see `GenerativeModel.draw`.

        Returns:
            dict: `capsules` (n, 1, E), zeros and ones.
        """
        n, seed = self.number_of_images(n), seed_given(seed)
        self.resolve_mode(mode, domain)
        chosen = keras.random.randint((n,), 0, self.persistent_chains, seed=StatelessSeed(seed))
        x = self.machine.sent(ops.take(self.chain_states, chosen, axis=0))
        _, y = gibbs_chain(
            self.machine.harmonium("float64"), x, self.burn_in, StatelessSeed(seed, 1)
        )
        offset = self.machine.hidden_offset
        y = y if offset is None else y + ops.cast(offset, y.dtype)
        # Adding the offset back may leave rounding errors.
        return {"capsules": ops.cast(ops.round(y), "float32")[:, None]}

    def to_visible(self, images):
        """Return visible neurons (B, D) of images, probabilities if they are stochastic."""
        v = ops.cast(self.to_features(images), "float32")
        v = ops.reshape(v, (-1, math.prod(self._feature_shape)))
        return ops.cast(v > 0.5, v.dtype) if self.binarize == "threshold" else v

    def from_visible(self, x):
        """Return images (B, H, W, C) for visible neurons (B, D)."""
        return self.from_features(ops.reshape(x, (-1, *self._feature_shape)))

    def visible_noise(self, n, seed):
        """Return visible neurons (n, D) of the RBM without maps."""
        return self.machine.noise(n, StatelessSeed(seed))

    def chain_step(self, x, seed=None, dtype="float64"):
        """One step from visible neurons (B, D): Gibbs with a `seed`, else mean field."""
        if seed is None:
            return self.machine.reconstruct(x)
        x, _ = gibbs_step(self.machine.harmonium(dtype), self.machine.sent(x), seed)
        return self.machine.received(ops.cast(x, "float32"))

    def gibbs_step(self, images, seed):
        seed = seed_given(seed)
        # Formats of other programs have no float64.
        return {"images": self.from_visible(self.chain_step(self.to_visible(images), seed, None))}

    def to_features(self, images):
        """Return the autoencoder's feature maps, or the pixels without one."""
        return images if self.autoencoder is None else self.autoencoder.encode(images)

    def from_features(self, features):
        """Return images (B, H, W, C) for features, pixels clipped or decoded to `[0, 1]`."""
        if self.autoencoder is None:
            return ops.clip(features, 0, 1)
        return self.autoencoder.decode(features)

    def reconstructions(self, images):
        """Return reconstructions of images (B, H, W, C) next to their originals.

        Returns:
            dict of pairs (decoded, original): `whole_code`, images; `visible`, neurons (B, D); with
            an autoencoder also `autoencoder`, images.
        """
        v = self.to_visible(images)
        decoded = self.machine.decode(self.machine(v))
        found = {"whole_code": (self.from_visible(decoded), images), "visible": (decoded, v)}
        if self.autoencoder is None:
            return found
        return {"autoencoder": (self.from_features(self.to_features(images)), images), **found}

    def density(self, images, seed=0, **named):
        """Return the density of v, see `LikelihoodModel.density`; takes no named words."""
        self.check_named(**named)
        return HarmoniumDensity(self, images, seed)

    @property
    def _feature_shape(self):
        return self.image_shape if self.autoencoder is None else self.autoencoder.feature_shape

    def get_config(self):
        values = self._VALUES if self.is_fitted else ()
        config = {name: getattr(self, name) for name in ("burn_in", *values)}
        return {**super().get_config(), **config}
