"""The tabs of the explorer, and the pictures and bars on them."""

import base64
import tempfile
from pathlib import Path

import numpy as np

from keras_capsule_poe import templates
from keras_capsule_poe.data.preparation import INVERT
from keras_capsule_poe.errors import DataError
from keras_capsule_poe.explorer.content import SLIDERS, SPAN
from keras_capsule_poe.io.pictures import picture
from keras_capsule_poe.plotting import embedded

# Widths in pixels of a picture that sliders move, and of one among many.
LARGE, SMALL = 224, 56
CHAINS = 12
PRIVATE = {"api_visibility": "private"}
QUIET = {"show_progress": "hidden", **PRIVATE}


def shown(images, names=(), width=SMALL, alt="image"):
    """Return HTML of images (H, W, C) side by side, each with its name below."""
    figures = []
    for number, image in enumerate(images):
        name = str(names[number]) if number < len(names) else ""
        address = embedded([np.asarray(image)[None]], gap=0, magnify=1)["address"]
        figures.append((name or f"{alt} {number}", name, address))
    return templates.render("pictures.html", figures=figures, width=width)


def bars(values, most=8, title=""):
    """Return HTML of bars of the largest shares, a dict."""
    largest = sorted(values.items(), key=lambda pair: -pair[1])[:most]
    return templates.render("bars.html", title=title, rows=largest)


def heat(maps, width=112):
    """Return HTML of maps (h, w) by name, each from dark (least) to bright (most)."""
    scaled = [((m - m.min()) / max(m.max() - m.min(), 1e-12))[..., None] for m in maps.values()]
    return shown(scaled, list(maps), width)


def saved(name, write):
    """Return the path of a temporary file with this name that `write` has written."""
    path = Path(tempfile.mkdtemp(prefix="capspoe-")) / name
    write(path)
    return str(path)


def fast(component, function, inputs, outputs):
    """Call a function at each move of a component, without a queue; late calls are dropped."""
    component.input(function, inputs, outputs, queue=False, trigger_mode="always_last", **QUIET)


def at_load(gr, function, inputs, outputs, **options):
    """Call a function when the page opens."""
    gr.context.Context.root_block.load(function, inputs, outputs, **(options or QUIET))


def capsules_tab(gr, content):
    """Gallery of capsules, and the samples, images, classes and sliders of the chosen one."""
    domains = list(content.model.modes["single"].domains)
    with gr.Tab("Capsules"):
        gr.Markdown("Each picture is what one capsule draws. Choose one, then move its dimensions.")
        gallery = gr.Gallery(
            [
                (np.asarray(picture([image[None]], gap=0).convert("RGB")), str(j))
                for j, image in enumerate(content.gallery())
            ],
            columns=10,
            height="auto",
            object_fit="contain",
            elem_classes="gallery",
            show_label=False,
            allow_preview=False,
            buttons=[],
            label="What each capsule draws",
        )
        chosen = gr.State(0)
        with gr.Row():
            with gr.Column():
                text = gr.Markdown("### Capsule 0")
                mover = _Mover(gr, content, chosen)
            with gr.Column(scale=2):
                mover.add_sliders()
        with gr.Row():
            with gr.Column():
                gr.Markdown("Samples of this capsule alone")
                samples = gr.HTML()
                with gr.Row():
                    domain = gr.Dropdown(domains, value=domains[-1], label="domain")
                    seed = gr.Number(0, precision=0, label="seed")
            with gr.Column():
                gr.Markdown("Test images that it wins, and their classes")
                won = gr.HTML()
                classes = gr.HTML()
        asked, described = [chosen, domain, seed], [text, samples, won, classes]

        def about(capsule, domain, seed):
            share = content.share(capsule)
            text = f"### Capsule {capsule}"
            if share is not None:
                text += f"\nIt wins {share:.1%} of {len(content.images):,} test images."
            drawn = content.samples(capsule, domain, 10, number_of(gr, seed))
            samples = shown(drawn, alt="sample")
            return text, samples, shown(content.won(capsule)), bars(content.classes(capsule))

        def clicked(event):
            capsule = event.index
            return [capsule, f"### Capsule {capsule}", *mover.chosen(capsule)]

        # Gradio looks at the annotation.
        clicked.__annotations__["event"] = gr.SelectData
        # The picture and the sliders come first; test images may still be encoded.
        selected = gallery.select(clicked, None, [chosen, text, *mover.parts], **QUIET)
        selected.then(about, asked, described, **QUIET)
        for changed in (domain, seed):
            changed.change(about, asked, described, **QUIET)
        at_load(gr, about, asked, described)


class _Mover:
    """The picture of a capsule, with sliders that move its dimensions and files of the result."""

    def __init__(self, gr, content, capsule):
        self.gr, self.content, self.capsule = gr, content, capsule
        self.low, self.high = (0.0, 1.0) if content.is_neurons else (-SPAN, SPAN)
        self.most = max(1, min(SLIDERS, content.model.dim))
        self.first = self._settings(0)
        self.image = gr.HTML(self.draw(0, *[each["value"] for each in self.first]))
        with gr.Row():
            self.reset = gr.Button("Reset", size="sm")
            self.random = gr.Button("Random", size="sm")
        with gr.Row():
            files = [gr.DownloadButton(f"Save {kind}", size="sm") for kind in ("PNG", "NPZ")]
        with gr.Accordion("Python lines that make this picture", open=False):
            self.kept = [gr.Code(language="python", interactive=False), *files]

    def add_sliders(self):
        """Add the sliders, in pairs, and what happens when they or the buttons are used."""
        gr, self.sliders = self.gr, []
        for k in range(0, self.most, 2):
            with gr.Row():
                self.sliders += [
                    gr.Slider(self.low, self.high, step=0.01, min_width=120, **each)
                    for each in self.first[k : k + 2]
                ]
        values = [self.capsule, *self.sliders]
        self.parts = [self.image, *self.kept, *self.sliders]
        self.reset.click(self.chosen, self.capsule, self.parts, **QUIET)
        drawn = [*self.sliders, self.image, *self.kept]
        self.random.click(self.at_random, self.capsule, drawn, **QUIET)
        for slider in self.sliders:
            fast(slider, self.draw, values, self.image)
            slider.release(self.keep, values, self.kept, **QUIET)
        at_load(gr, self.keep, values, self.kept)

    def _settings(self, capsule):
        """Return the settings of the sliders of a capsule."""
        found = [
            {"value": value, "label": f"dimension {d}", "visible": True}
            for d, value in zip(self.content.dimensions(capsule), self.content.values(capsule))
        ]
        return found + [{"value": 0.0, "visible": False}] * (self.most - len(found))

    def code(self, capsule, *values):
        """Return the usual code of a capsule with its dimensions moved to the sliders' values."""
        moves = dict(zip(self.content.dimensions(capsule), values))
        return self.content.moved(self.content.usual(capsule)[0], capsule, moves)

    def draw(self, capsule, *values):
        """Return the picture of the moved capsule."""
        images = self.content.pictures(self.code(capsule, *values)[None])
        return shown(images, (), LARGE, "moved")

    def keep(self, capsule, *values):
        """Return the Python lines, and the files of the picture and of its code."""
        code, model = self.code(capsule, *values), self.content.model
        pixels = self.content.pictures(code[None])[0]
        own = ", ".join(f"{value:.4f}" for value in code[capsule])
        lines = (
            "import keras_capsule_poe as kcp\nimport numpy as np\n\n"
            f"model = kcp.load({self.content.name!r})\n"
            f"code = np.zeros((1, {model.capsules}, {model.dim}))\n"
            f"code[0, {capsule}] = [{own}]\n"
            "model.decode(code).images"
        )
        large = picture([pixels[None]], gap=0, magnify=8)
        return (
            lines,
            saved(f"capsule-{capsule}.png", large.save),
            saved(f"capsule-{capsule}.npz", lambda path: np.savez(path, image=pixels, code=code)),
        )

    def chosen(self, capsule):
        """Return the picture, the files and the sliders of a capsule as it usually is."""
        new = self._settings(capsule)
        values = [each["value"] for each in new]
        sliders = [self.gr.Slider(**each) for each in new]
        return [self.draw(capsule, *values), *self.keep(capsule, *values), *sliders]

    def at_random(self, capsule):
        """Return random values of the sliders, the picture and the files."""
        drawn = np.random.default_rng().uniform(self.low, self.high, self.most)
        values = [round(float(value), 2) for value in drawn]
        return [*values, self.draw(capsule, *values), *self.keep(capsule, *values)]


class _Choice:
    """A slider of known images or None, an upload, and whether its brightness is inverted."""

    def __init__(self, gr, content):
        self.gr, self.content, self.known = gr, content, None
        if content.images is not None:
            self.known = gr.Slider(0, len(content.images) - 1, value=0, step=1, label="Test image")
        label = "or upload an image"
        self.upload = gr.Image(label=label, type="filepath", sources=["upload", "clipboard"])
        # The file as it is: Gradio would drop transparency and all but eight bits.
        self.upload.preprocess = lambda file: file and file.path
        label = "Invert the brightness of an upload"
        self.invert = gr.Radio(list(INVERT), value="auto", label=label)
        self.said = gr.Markdown()

    def connect(self, look, outputs, canvas=None):
        """Call `look(image)` whenever another image is chosen, uploaded or drawn."""
        gr, content, outputs = self.gr, self.content, [self.said, *outputs]

        def prepared(source, invert):
            if source is None:
                return [gr.skip()] * len(outputs)
            try:
                image, notes = content.prepared(source, invert)
            except DataError as error:
                raise gr.Error(str(error), print_exception=False) from None
            return ", ".join(notes).capitalize(), *look(image)

        def drawn(value, invert):
            pixels = None if value is None else value.get("composite")
            # The empty canvas is no drawing.
            is_empty = pixels is None or not pixels[..., :3].any()
            return prepared(None if is_empty else pixels[..., :3], invert)

        def known(number):
            return "", *look(content.known_image(number))

        self.upload.change(prepared, [self.upload, self.invert], outputs, **QUIET)
        self.invert.change(prepared, [self.upload, self.invert], outputs, **QUIET)
        if canvas is not None:
            canvas.input(drawn, [canvas, self.invert], outputs, **QUIET)
        if self.known is not None:
            fast(self.known, known, self.known, outputs)
            at_load(gr, lambda: known(0), None, outputs)


def number_of(gr, seed):
    """Return the seed in a field of the page; raise an error that the page shows."""
    if seed is None or not 0 <= seed < 2**31:
        raise gr.Error(f"The seed must be from 0 to {2**31 - 1}.", print_exception=False)
    return int(seed)


def image_tab(gr, content):
    """The code, the winners, the reconstructions and the coupling coefficients of an image."""
    has_maps = hasattr(content.model, "coupling_maps")

    def look(image):
        rows = content.rows(image)
        return (
            shown(rows.values(), list(rows), 112),
            bars(content.probabilities(image)),
            heat(content.coupling_maps(image)) if has_maps else "",
        )

    with gr.Tab("Image"), gr.Row():
        with gr.Column():
            choice = _Choice(gr, content)
            canvas = gr.Sketchpad(
                label="or draw one, white on black",
                type="numpy",
                canvas_size=(280, 280),
                brush=gr.Brush(default_size=18, colors=["#ffffff"], color_mode="fixed"),
                layers=False,
                transforms=[],
                value=np.zeros((280, 280, 3), "uint8"),
            )
        with gr.Column():
            gr.Markdown("The image, and its reconstructions")
            rows = gr.HTML()
            gr.Markdown("Probabilities of the capsules")
            probabilities = gr.HTML()
            gr.Markdown("Coupling coefficients of the winners: bright places contribute most")
            maps = gr.HTML(visible=has_maps)
        choice.connect(look, [rows, probabilities, maps], canvas)


def blend_tab(gr, content):
    """The mixture of the codes of two images."""

    def blend(first, second, t):
        images = [content.known_image(number) for number in (first, second)]
        middle = content.blended(*images, t)
        return shown([images[0][0], middle, images[1][0]], ("first", "blend", "second"), 168)

    with gr.Tab("Blend"):
        gr.Markdown("The code of one image turns into the code of another one.")
        last = len(content.images) - 1
        sliders = [
            gr.Slider(0, last, value=0, step=1, label="first image"),
            gr.Slider(0, last, value=min(1, last), step=1, label="second image"),
            gr.Slider(0, 1, value=0.5, step=0.01, label="from the first to the second"),
        ]
        out = gr.HTML()
        for slider in sliders:
            fast(slider, blend, sliders, out)
        at_load(gr, blend, sliders, out)


def classifier_tab(gr, content):
    """The class probabilities of an image, its class capsule moved, and its routing."""
    model = content.model
    dims = min(SLIDERS, model.dim) if content.decodes and hasattr(model, "dim") else 0

    def look(image):
        rows = {"image": image[0]}
        if content.decodes:
            rows["reconstruction"] = np.asarray(model.reconstruct(image)["images"])[0]
        named, means = content.coupling_means(image)
        title = f"Mean coupling coefficient to class {named}"
        return (
            shown(rows.values(), list(rows), 168),
            bars(content.probabilities(image), 10),
            bars(means, title=title) if means else "",
            image,
        )

    def move(image, *values):
        if image is None or not dims:
            return ""
        capsules, named = content.class_codes(image)
        code = np.zeros_like(capsules)
        code[named] = capsules[named]
        code[named, :dims] += np.array(values, "float32")
        return shown(content.pictures(code[None]), [content.class_name(named)], LARGE)

    with gr.Tab("Classify"), gr.Row():
        state = gr.State(None)
        with gr.Column():
            choice = _Choice(gr, content)
        with gr.Column():
            rows = gr.HTML()
            gr.Markdown("Probabilities of the classes")
            probabilities = gr.HTML()
            routed = gr.HTML()
        if dims:
            with gr.Column():
                gr.Markdown("The capsule of the predicted class, moved")
                moved = gr.HTML()
                moves = [
                    gr.Slider(-0.5, 0.5, value=0, step=0.01, label=f"dimension {d}")
                    for d in range(dims)
                ]
                for slider in moves:
                    fast(slider, move, [state, *moves], moved)
        choice.connect(look, [rows, probabilities, routed, state])


def filters_tab(gr, content):
    """How each neuron changes an image."""
    from keras_capsule_poe.figures import plot_filters

    def figure(capsule):
        made = plot_filters(content.model, capsule=int(capsule))
        data = base64.b64encode(made._repr_png_()).decode("ascii")
        return f'<img alt="filters" style="max-width:100%" src="data:image/png;base64,{data}">'

    with gr.Tab("Neurons"):
        gr.Markdown("How each neuron changes the image, the strongest first.")
        last = content.model.capsules - 1
        capsule = gr.Slider(0, max(last, 1), value=0, step=1, label="capsule", visible=last > 0)
        out = gr.HTML()
        capsule.release(figure, capsule, out, **PRIVATE)
        at_load(gr, figure, capsule, out, **PRIVATE)


def chains_tab(gr, content):
    """Markov chains that step while one looks."""
    kind = "Gibbs" if "gibbs" in content.chains else "mean-field"

    def restart(seed):
        return walk(content.start(CHAINS, number_of(gr, seed)), 0, seed, 0)

    def walk(states, done, seed, steps):
        states = content.walked(states, int(steps), done, number_of(gr, seed))
        done += int(steps)
        return states, done, shown(content.states(states), (), 84, "chain"), f"{done} steps"

    with gr.Tab("Chains"):
        gr.Markdown(f"{kind} chains that start from noise, {CHAINS} of them.")
        states, done = gr.State(None), gr.State(0)
        with gr.Row():
            step = gr.Button("Step")
            ten = gr.Button("10 steps")
            run = gr.Checkbox(False, label="run")
            seed = gr.Number(0, precision=0, label="seed")
            again = gr.Button("Start again")
        count = gr.Markdown("0 steps")
        out = gr.HTML()
        one, more = gr.State(1), gr.State(10)
        timer = gr.Timer(0.3, active=False)
        parts = [states, done, out, count]
        step.click(walk, [states, done, seed, one], parts, **QUIET)
        ten.click(walk, [states, done, seed, more], parts, **QUIET)
        timer.tick(walk, [states, done, seed, one], parts, **QUIET)
        run.change(lambda on: gr.Timer(active=on), run, timer, **QUIET)
        again.click(restart, seed, parts, **QUIET)
        at_load(gr, restart, seed, parts)


def fill_tab(gr, content):
    """Erased pixels that the model's chain fills in."""
    height, width, _ = content.model.image_shape
    kinds = {
        "lower half": np.s_[height // 2 :, :],
        "upper half": np.s_[: height // 2, :],
        "right half": np.s_[:, width // 2 :],
        "middle": np.s_[height // 4 : -(height // 4), width // 4 : -(width // 4)],
    }

    def fill(image, part, steps):
        if image is None:
            return ""
        erased = np.zeros((height, width), bool)
        erased[kinds[part]] = True
        holes = np.where(erased[..., None], 0.5, image[0])
        found = content.filled(image, erased, int(steps))
        return shown([image[0], holes, found], ("image", "erased", "filled in"), 168)

    with gr.Tab("Fill in"):
        gr.Markdown("The model fills in pixels that are erased. Its chain makes the missing part.")
        state = gr.State(None)
        choice = _Choice(gr, content)
        part = gr.Dropdown(list(kinds), value="lower half", label="erase")
        steps = gr.Slider(1, 100, value=30, step=1, label="steps")
        start = gr.Button("Fill in")
        out = gr.HTML()
        choice.connect(lambda image: (shown(image, (), 168), image), [out, state])
        start.click(fill, [state, part, steps], out, **PRIVATE)
