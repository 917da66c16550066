"""Contents of the explorer: arrays and texts of a model, without the page."""

import functools
import os
import threading

import numpy as np

from keras_capsule_poe.core.labels import winners
from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.data.arrays import image_array
from keras_capsule_poe.data.image_set import ImageData, ImageSet
from keras_capsule_poe.data.mapping import map_batches, to_pixels
from keras_capsule_poe.data.pixels import check_images, floats_to_bytes
from keras_capsule_poe.data.preparation import prepared_image
from keras_capsule_poe.errors import DataError
from keras_capsule_poe.io.text import class_word
from keras_capsule_poe.plotting import chain_step, reconstruction_rows, row_names, usual_code

# Test images that are encoded to say what capsules win, and dimensions that have a slider.
KNOWN, SLIDERS = 2_000, 16
# A code moves by this at most along a dimension; of neurons, each is between off and on.
SPAN = 1.0


def known_images(images, model):
    """Return an `ImageSet` of the first images of one, of an `ImageData`, or of an array.

    Raises:
        DataError: If they are no images of the model.
    """
    if isinstance(images, ImageData):
        images = images.test
    if not hasattr(images, "head"):
        pixels = image_array(images, model.image_shape)[:KNOWN]
        images = ImageSet(
            pixels if pixels.dtype == np.uint8 else floats_to_bytes(pixels, "`images`")
        )
    check_images(images.images, "`images`", image_shape=model.image_shape)
    if not len(images):
        raise DataError("`images` must be one image or more. Received: none.")
    return images.head(KNOWN)


class Content:
    """Pictures and numbers of a model and, if given, of images that it knows.

    Args:
        model: A trained model of any family.
        images: Test images, as `known_images` takes them, or None.
        name: String, the folder or name of the model.
    """

    def __init__(self, model, images=None, name="MODEL"):
        self.model, self.name = model, name
        self.images = None if images is None else known_images(images, model)
        modes = getattr(model, "modes", {})
        self.generates = bool(modes)
        self.has_single = "single" in modes
        self.is_neurons = hasattr(model, "neuron_values")
        self.chains = tuple(getattr(model, "CHAINS", ()))
        self.classifies = not self.generates and hasattr(model, "classify")
        self.decodes = "reconstruct" in model.ENDPOINTS
        self.usual = functools.lru_cache(maxsize=128)(functools.partial(usual_code, model))
        self._codes, self._lock = None, threading.Lock()

    def summary(self):
        """Return a line about the model."""
        model = self.model
        parts = [f"images of {'x'.join(map(str, model.image_shape))}"]
        if getattr(model, "capsules", 0) and hasattr(model, "dim"):
            parts.append(f"{model.capsules} capsules of {model.dim} dimensions")
        return ", ".join([*parts, f"{model.count_params():,} parameters"])

    # Codes and their pictures.

    @functools.cached_property
    def _render(self):
        return compiled(lambda codes: self.model.render(codes)["images"])

    def pictures(self, codes):
        """Return images (N, H, W, C) of codes (N, J, E)."""
        return np.asarray(self._render(np.asarray(codes, "float32")))

    def dimensions(self, capsule):
        """Return the dimensions of a capsule that have a slider."""
        return sorted(self.usual(capsule)[1][:SLIDERS])

    def values(self, capsule):
        """Return the values of the sliders of a capsule's dimensions for its usual code."""
        chosen = self.dimensions(capsule)
        if not self.is_neurons:
            return [0.0] * len(chosen)
        off, on = (each[capsule] for each in self.model.neuron_values())
        own = (self.usual(capsule)[0][capsule] - off) / (on - off)
        return [float(np.clip(own[d], 0, 1)) for d in chosen]

    def moved(self, code, capsule, values):
        """Return a code (J, E) with dimensions of a capsule moved by values, a dict.

        Neurons are set to values from 0, off, to 1, on.
        """
        code = np.array(code, "float32")
        own, dimensions = code[capsule], list(values)
        length, moves = np.linalg.norm(own), np.array([*values.values()], "float32")
        if self.is_neurons:
            off, on = (each[capsule][dimensions] for each in self.model.neuron_values())
            own[dimensions] = off + moves * (on - off)
            return code
        own[dimensions] += moves
        if len(own) > 1:
            # A capsule turns and keeps its length, the probability that it is on.
            own *= length / max(np.linalg.norm(own), 1e-12)
        return code

    def samples(self, capsule, domain, n, seed):
        """Return images (n, H, W, C) of one capsule."""
        return self.model.sample(n, seed, "single", domain, capsule).images

    def gallery(self, seed=0):
        """Return one image of each capsule (J, H, W, C)."""
        domain = self.model.modes["single"].domains[-1]
        drawn = self.model.sample(4 * self.model.capsules, seed, "single", domain)
        first = [np.flatnonzero(drawn.index == j)[0] for j in range(self.model.capsules)]
        return drawn.images[first]

    # Images that the model knows.

    @property
    def codes(self):
        """Codes of the known images, or None."""
        if self.images is None or not self.generates:
            return None
        # Several calls of the page may ask at once.
        with self._lock:
            if self._codes is None:
                self._codes = map_batches(self.model.encode, self.images.images)
        return self._codes

    @functools.cached_property
    def winner(self):
        """The winning capsule (N,) of each known image, or None."""
        return None if self.codes is None else winners(self.codes["probabilities"])

    def share(self, capsule):
        """Return the share of the known images that a capsule wins, or None."""
        return None if self.winner is None else float(np.mean(self.winner == capsule))

    def won(self, capsule, n=10):
        """Return at most n known images that a capsule wins, the most probable first."""
        if self.winner is None:
            return []
        mine = np.flatnonzero(self.winner == capsule)
        order = np.argsort(-self.codes["probabilities"][mine, capsule], kind="stable")
        return to_pixels(self.images.images[mine[order[:n]]])

    def classes(self, capsule):
        """Return {class name: share} of the known images that a capsule wins."""
        labels = None if self.images is None else self.images.labels
        if self.winner is None or labels is None or labels.ndim > 1:
            return {}
        values, counts = np.unique(labels[self.winner == capsule], return_counts=True)
        return {self.class_name(v): float(c / counts.sum()) for v, c in zip(values, counts)}

    def class_name(self, number):
        """Return the name of a class."""
        names = self.images.class_names if self.images is not None else self.model.class_names
        return class_word(number, names)

    # One image.

    def prepared(self, source, invert="auto"):
        """Return a file or an array as an image (1, H, W, C) of the model, and notes on it."""
        name = os.path.basename(source) if isinstance(source, str) else None
        found = prepared_image(source, self.model.preparation, invert, name=name)
        return to_pixels(found.pixels[None]), found.notes

    def known_image(self, number):
        """Return a known image (1, H, W, C), pixels in [0, 1]."""
        number = int(number) % len(self.images)
        return to_pixels(self.images.images[number : number + 1])

    def rows(self, image):
        """Return {name: image (H, W, C)} of an image and its reconstructions."""
        found = reconstruction_rows(self.model, image)
        return dict(zip(row_names(found), (row[0] for row in found.values())))

    def probabilities(self, image):
        """Return {name: probability} of capsules, or of classes."""
        ask = self.model.classify if self.classifies else self.model.encode
        found = np.asarray(ask(image)["probabilities"])[0]
        name = self.class_name if self.classifies else "capsule {}".format
        return {name(j): float(p) for j, p in enumerate(found)}

    def coupling_maps(self, image, shown=4):
        """Return {name: map (h, w)} of the coupling coefficients of the most probable capsules."""
        if not hasattr(self.model, "coupling_maps"):
            return {}
        maps = np.asarray(self.model.coupling_maps(image))[0]
        p = np.asarray(self.model.encode(image)["probabilities"])[0]
        order = np.argsort(-p, kind="stable")[:shown]
        return {f"capsule {j}, probability {p[j]:.2f}": maps[..., j] for j in order}

    def coupling_means(self, image):
        """Return the name of the predicted class, and {iteration: mean coefficient to it}."""
        if getattr(self.model, "routing_iterations", 1) == 1:
            return None, {}
        named = self.class_codes(image)[1] if hasattr(self.model, "encode") else 0
        means = np.asarray(self.model.couplings(image))[0].mean(axis=1)[:, named]
        steps = ["start", *(f"iteration {t}" for t in range(1, len(means)))]
        return self.class_name(named), dict(zip(steps, means))

    def blended(self, first, second, t):
        """Return the image (H, W, C) of a mixture of the codes of two images."""
        codes = [np.asarray(self.model.encode(image)["capsules"])[0] for image in (first, second)]
        return self.pictures([(1 - t) * codes[0] + t * codes[1]])[0]

    def class_codes(self, image):
        """Return the capsules (J, E) of a classifier for an image, and the predicted class."""
        capsules = np.asarray(self.model.encode(image)["capsules"])[0]
        p = np.asarray(self.model.classify(image)["probabilities"])[0]
        return capsules, int(p.argmax())

    # Chains.

    @functools.cached_property
    def _to_visible(self):
        return compiled(self.model.to_visible)

    @functools.cached_property
    def _from_visible(self):
        return compiled(self.model.from_visible)

    @functools.cached_property
    def _step(self):
        return chain_step(self.model, "gibbs" if "gibbs" in self.chains else None)

    def start(self, n, seed):
        """Return states of n chains of noise."""
        return np.asarray(self.model.visible_noise(n, seed))

    def walked(self, states, steps, done, seed):
        """Return states after more steps, of which `done` were made before."""
        for step in range(done + 1, done + steps + 1):
            states = self._step(states, seed, step)
        return states

    def states(self, states):
        """Return images (N, H, W, C) of states of chains."""
        return np.asarray(self._from_visible(np.asarray(states, "float32")))

    def filled(self, image, erased, steps=30, seed=0):
        """Return an image (H, W, C) whose erased pixels (H, W) the model's chain has filled in."""
        erased = erased[..., None]
        shown = np.where(erased, 0.5, image).astype("float32")
        for step in range(1, steps + 1):
            x = self.walked(np.asarray(self._to_visible(shown)), 1, step - 1, seed)
            shown = np.where(erased, self.states(x), image).astype("float32")
        return shown[0]
