"""The tabs of the explorer."""

import base64
import html

import numpy as np

from keras_capsule_poe.explorer.content import SLIDERS, SPAN
from keras_capsule_poe.explorer.pictures import (
    LARGE,
    SMALL,
    bars,
    blank,
    heat,
    save_png_of,
    saved,
    shown,
    to_bytes,
)

CHAINS = 12


def fast(component, function, inputs, outputs):
    """Call a function at each move of a component, without a queue; late calls are dropped."""
    component.input(
        function, inputs, outputs, queue=False, show_progress="hidden", trigger_mode="always_last",
        api_visibility="private",
    )  # fmt: skip


def capsules_tab(gr, content):
    """Gallery of capsules, and the samples, images, classes and sliders of the chosen one."""
    model = content.model
    domains = list(model.modes["single"].domains)
    most = max(1, min(SLIDERS, model.dim))
    low, high = (0.0, 1.0) if content.is_neurons else (-SPAN, SPAN)

    def settings(capsule):
        """Return the settings of the sliders of a capsule."""
        found = [
            {"value": value, "label": f"dimension {d}", "visible": True}
            for d, value in zip(content.dimensions(capsule), content.values(capsule))
        ]
        return found + [{"value": 0.0, "visible": False}] * (most - len(found))

    def code_of(capsule, *values):
        code, _ = content.usual(capsule)
        moves = dict(zip(content.dimensions(capsule), values))
        return content.moved(code, capsule, moves)

    def draw(capsule, *values):
        return shown([content.pictures(code_of(capsule, *values)[None])[0]], (), LARGE, "moved")

    def about(capsule, domain, seed):
        share = content.share(capsule)
        text = f"### Capsule {capsule}"
        if share is not None:
            text += f"\nIt wins {share:.1%} of {len(content.images):,} test images."
        won = content.won(capsule)
        samples = content.samples(capsule, domain, 10, int(seed))
        return text, shown(samples, (), SMALL, "sample"), shown(won), bars(content.classes(capsule))

    def lines(capsule, *values):
        made = code_of(capsule, *values)
        own = ", ".join(f"{value:.4f}" for value in made[capsule])
        return (
            "import keras_capsule_poe as kcp\nimport numpy as np\n\n"
            f"model = kcp.load({content.name!r})\n"
            f"code = np.zeros((1, {model.capsules}, {model.dim}))\n"
            f"code[0, {capsule}] = [{own}]\n"
            "model.decode(code).images"
        )

    first = settings(0)
    with gr.Tab("Capsules"):
        gr.Markdown("Each picture is what one capsule draws. Choose one, then move its dimensions.")
        gallery = gr.Gallery(
            [(to_bytes(image), str(j)) for j, image in enumerate(content.gallery())],
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
                image = gr.HTML(draw(0, *[each["value"] for each in first]))
                with gr.Row():
                    reset = gr.Button("Reset", size="sm")
                    random = gr.Button("Random", size="sm")
                with gr.Row():
                    save_png = gr.DownloadButton("Save PNG", size="sm")
                    save_npz = gr.DownloadButton("Save NPZ", size="sm")
                with gr.Accordion("Python lines that make this picture", open=False):
                    code = gr.Code(language="python", interactive=False)
            with gr.Column(scale=2):
                moves = []
                for k in range(0, most, 2):
                    with gr.Row():
                        moves += [
                            gr.Slider(low, high, step=0.01, min_width=120, **each)
                            for each in first[k : k + 2]
                        ]
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

        def kept(capsule, *values):
            """Return the Python lines, and the files of the picture and of its code."""
            made = code_of(capsule, *values)
            pixels = content.pictures(made[None])[0]
            found = {"image": pixels, "code": made}
            return (
                lines(capsule, *values),
                saved(f"capsule-{capsule}.png", lambda path: save_png_of(path, pixels)),
                saved(f"capsule-{capsule}.npz", lambda path: np.savez(path, **found)),
            )

        def choose(capsule):
            new = settings(capsule)
            values = [each["value"] for each in new]
            return [
                capsule,
                f"### Capsule {capsule}",
                draw(capsule, *values),
                *kept(capsule, *values),
                *(gr.Slider(**each) for each in new),
            ]

        def clicked(event):
            return choose(event.index)

        # Gradio looks at the annotation.
        clicked.__annotations__["event"] = gr.SelectData

        def at_random(capsule):
            values = [round(float(v), 2) for v in np.random.default_rng().uniform(low, high, most)]
            return [*values, draw(capsule, *values), *kept(capsule, *values)]

        described, files = [text, samples, won, classes], [code, save_png, save_npz]
        parts, asked = [chosen, text, image, *files, *moves], [chosen, domain, seed]
        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        # The picture and the sliders come first; test images may still be encoded.
        gallery.select(clicked, None, parts, **quiet).then(about, asked, described, **quiet)
        reset.click(choose, chosen, parts, **quiet)
        random.click(at_random, chosen, [*moves, image, *files], **quiet)
        for changed in (domain, seed):
            changed.change(about, asked, described, **quiet)
        for slider in moves:
            fast(slider, draw, [chosen, *moves], image)
            slider.release(kept, [chosen, *moves], files, **quiet)
        page = gr.context.Context.root_block
        page.load(about, asked, described, **quiet)
        page.load(kept, [chosen, *moves], files, **quiet)


def image_choice(gr, content, label="Test image"):
    """Return a number of a known image or None, an upload and a canvas."""
    known = None
    if content.images is not None:
        last = len(content.images) - 1
        known = gr.Slider(0, last, value=0, step=1, label=label)
    upload = gr.Image(label="or upload an image", type="numpy", sources=["upload", "clipboard"])
    return known, upload


def image_tab(gr, content):
    """The code, the winners, the reconstructions and the coupling coefficients of an image."""

    def look(image):
        rows = content.rows(image)
        return (
            shown(rows.values(), list(rows), 112),
            bars(content.probabilities(image)),
            heat(content.coupling_maps(image)) if hasattr(content.model, "coupling_maps") else "",
        )

    with gr.Tab("Image"):
        with gr.Row():
            with gr.Column():
                known, upload = image_choice(gr, content)
                canvas = gr.Sketchpad(
                    label="or draw one, white on black", type="numpy", canvas_size=(280, 280),
                    brush=gr.Brush(default_size=18, colors=["#ffffff"], color_mode="fixed"),
                    layers=False, transforms=[], value=blank(280),
                )  # fmt: skip
            with gr.Column():
                gr.Markdown("The image, and its reconstructions")
                rows = gr.HTML()
                gr.Markdown("Probabilities of the capsules")
                probabilities = gr.HTML()
                gr.Markdown("Coupling coefficients of the winners: bright places contribute most")
                maps = gr.HTML(visible=hasattr(content.model, "coupling_maps"))
        outputs = [rows, probabilities, maps]
        connect(gr, content, look, known, upload, canvas, outputs)


def connect(gr, content, look, known, upload, canvas, outputs):
    """Call `look(image)` whenever another image is chosen, uploaded or drawn."""
    quiet = {"show_progress": "hidden", "api_visibility": "private"}

    def uploaded(pixels):
        return look(content.fitted(pixels)) if pixels is not None else [gr.skip()] * len(outputs)

    def drawn(value):
        # The empty canvas is no drawing.
        if value is None or value.get("composite") is None or not value["composite"][..., :3].any():
            return [gr.skip()] * len(outputs)
        return look(content.fitted(value["composite"][..., :3]))

    upload.change(uploaded, upload, outputs, **quiet)
    if canvas is not None:
        canvas.input(drawn, canvas, outputs, **quiet)
    if known is not None:
        fast(known, lambda number: look(content.known_image(number)), known, outputs)
        page = gr.context.Context.root_block
        page.load(lambda: look(content.known_image(0)), None, outputs, **quiet)


def blend_tab(gr, content):
    """The mixture of the codes of two images."""

    def blend(first, second, t):
        images = [content.known_image(number) for number in (first, second)]
        middle = content.blended(*images, t)
        return shown([images[0][0], middle, images[1][0]], ("first", "blend", "second"), 168)

    with gr.Tab("Blend"):
        gr.Markdown("The code of one image turns into the code of another one.")
        last = len(content.images) - 1
        first = gr.Slider(0, last, value=0, step=1, label="first image")
        second = gr.Slider(0, last, value=min(1, last), step=1, label="second image")
        t = gr.Slider(0, 1, value=0.5, step=0.01, label="from the first to the second")
        out = gr.HTML()
        for slider in (first, second, t):
            fast(slider, blend, [first, second, t], out)
        page = gr.context.Context.root_block
        page.load(blend, [first, second, t], out, show_progress="hidden", api_visibility="private")


def classifier_tab(gr, content):
    """The class probabilities of an image, its class capsule moved, and its routing."""
    model = content.model
    dims = min(SLIDERS, model.dim) if content.decodes and hasattr(model, "dim") else 0

    def look(image):
        rows = [image[0]]
        names = ["image"]
        if content.decodes:
            rows.append(np.asarray(model.reconstruct(image)["images"])[0])
            names.append("reconstruction")
        routed = coupling_text(content, image)
        return shown(rows, names, 168), bars(content.probabilities(image), 10), routed, image

    def move(image, *values):
        if image is None or not dims:
            return ""
        capsules, named = content.class_codes(image)
        code = np.zeros_like(capsules)
        code[named] = capsules[named]
        code[named, :dims] += np.array(values, "float32")
        return shown([content.pictures(code[None])[0]], [content.class_name(named)], LARGE)

    with gr.Tab("Classify"), gr.Row():
        state = gr.State(None)
        with gr.Column():
            known, upload = image_choice(gr, content)
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
        connect(gr, content, look, known, upload, None, [rows, probabilities, routed, state])


def coupling_text(content, image):
    """Return HTML of what routing changed: the mean coefficients of each class by iteration."""
    model = content.model
    if getattr(model, "routing_iterations", 1) == 1:
        return ""
    c = np.asarray(model.couplings(image))[0]
    named = content.class_codes(image)[1] if hasattr(model, "encode") else 0
    means = c.mean(axis=1)[:, named]
    steps = ["start", *(f"iteration {t}" for t in range(1, len(means)))]
    name = html.escape(content.class_name(named))
    return f"<p>Mean coupling coefficient to class {name}</p>" + bars(dict(zip(steps, means)))


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
        capsule.release(figure, capsule, out, api_visibility="private")
        page = gr.context.Context.root_block
        page.load(figure, capsule, out, api_visibility="private")


def chains_tab(gr, content):
    """Markov chains that step while one looks."""
    kind = "Gibbs" if "gibbs" in content.chains else "mean-field"

    def restart(seed):
        states = content.start(CHAINS, int(seed))
        return states, 0, shown(content.states(states), (), 84, "chain"), "0 steps"

    def walk(states, done, seed, steps):
        states = content.walked(states, int(steps), done, int(seed))
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
        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        step.click(walk, [states, done, seed, one], parts, **quiet)
        ten.click(walk, [states, done, seed, more], parts, **quiet)
        timer.tick(walk, [states, done, seed, one], parts, **quiet)
        run.change(lambda on: gr.Timer(active=on), run, timer, **quiet)
        again.click(restart, seed, parts, **quiet)
        page = gr.context.Context.root_block
        page.load(restart, seed, parts, **quiet)


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
        erased = np.zeros((height, width), bool)
        erased[kinds[part]] = True
        holes = np.where(erased[..., None], 0.5, image[0])
        found = content.filled(image, erased, int(steps))
        return shown([image[0], holes, found], ("image", "erased", "filled in"), 168)

    with gr.Tab("Fill in"):
        gr.Markdown("The model fills in pixels that are erased. Its chain makes the missing part.")
        state = gr.State(None)
        known, upload = image_choice(gr, content)
        part = gr.Dropdown(list(kinds), value="lower half", label="erase")
        steps = gr.Slider(1, 100, value=30, step=1, label="steps")
        start = gr.Button("Fill in")
        out = gr.HTML()

        def look(image):
            return shown(image, (), 168), image

        connect(gr, content, look, known, upload, None, [out, state])
        start.click(
            lambda image, part, steps: "" if image is None else fill(image, part, steps),
            [state, part, steps],
            out,
            api_visibility="private",
        )
