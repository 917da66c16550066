"""The page of a model: a folder of static files with which it runs in any browser, offline."""

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.directions import (
    alone,
    centre,
    codes_of_capsule,
    decoded,
    effects,
    ink_of,
    shown_directions,
    with_length,
)
from keras_capsule_poe.errors import BadUse, RunFailed, listing
from keras_capsule_poe.explorer.content import Content
from keras_capsule_poe.explorer.files import write_files
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.pictures import picture
from keras_capsule_poe.io.records import read_json
from keras_capsule_poe.portable import check_packages

# The page itself, which `make page` builds.
BUILT = Path(__file__).parent / "built"
RUNTIME = "ort-wasm-simd-threaded"
SCRIPTS = ("index.html", "page.js", "style.css", f"{RUNTIME}.mjs", f"{RUNTIME}.wasm")
ABOUT = "model.json"
# Folder of a second model, and the way back from it.
BESIDE, BACK = "beside/", "../"
# Numbers of codes for "Random", of all capsules together; and images of a row of the sheet.
CODES, COLUMNS = 40_000, 40
# Data sets by what their images show.
SHOWN = {"mnist": "handwritten digits", "digits": "handwritten digits", "fashion_mnist": "clothes"}


def write_page(
    model: Any,
    folder: str | Path,
    images: Any = None,
    name: str = "MODEL",
    pictures: Any = None,
    beside: tuple[Any, Any, str] | None = None,
) -> Path:
    """Write a folder with which a model runs in a browser, without a server of its own.

    Any static host serves the folder, as does `python -m http.server`. It loads nothing from other
    hosts.

    Args:
        model: A trained model.
        folder: Path. An earlier page there is replaced; other files are never overwritten.
        images: `ImageSet` of test images, for the views that show known images, or None.
        name: String, the name that `kcp.load` takes, for the lines of Python on the page.
        pictures: Folder of pictures of the training, or None.
        beside: A second model, its images or None, and its name. None: the page has one model.

    Returns:
        Path of the folder.

    Raises:
        BadUse: If the model has nothing to play with, the folder holds other files, or the page
            was not built.

    Example:

    >>> import keras_capsule_poe as kcp
    >>> write_page(kcp.load("mnist"), "page")  # doctest: +SKIP
    """
    folder = Path(folder)
    check_folder(folder)
    content = Content(model, images, name)
    second = Content(*beside) if beside else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder) as temporary:
        about = _model_files(content, temporary, pictures)
        if second:
            about["beside"] = BESIDE
            _write_about(_model_files(second, temporary / BESIDE), temporary / BESIDE, beside=BACK)
        for script in SCRIPTS:
            (temporary / script).write_bytes((BUILT / script).read_bytes())
        _write_about(about, temporary, written=[ABOUT, *_names(temporary)])
    return folder


def _model_files(content, folder, pictures=None):
    """Write the files of a model to a new folder, and return what the page knows of it."""
    folder.mkdir()
    about = _about(content)
    about["files"] = write_files(content.model, folder)
    about |= _known(content, folder) | _film(pictures, folder)
    about["each"] = _capsules(content, folder, about)
    return about


def _write_about(about, folder, **more):
    (folder / ABOUT).write_text(json.dumps({**about, **more}, separators=(",", ":")))


def check_folder(folder=None):
    """Raise `BadUse` unless a page can be made, in a folder that is new, empty or an earlier page.

    Without a folder, only the script and the packages are looked for.
    """
    check_packages("onnx")
    if not all((BUILT / script).exists() for script in SCRIPTS):
        raise BadUse(
            "The script of the page is missing. Run `make page` in a checkout; it needs npm."
        )
    folder = folder and Path(folder)
    if not folder or not folder.exists():
        return
    other = names = _names(folder)
    with contextlib.suppress(RunFailed, AttributeError, TypeError):
        about = read_json(folder / ABOUT)
        if "page" in about:
            # Pages of earlier versions do not say what they hold.
            other = sorted({*names} - {*about.get("written", names)})
    if other or not folder.is_dir():
        held = f"which holds other files: {listing(other, 3)}" if other else "a file"
        raise BadUse(
            "`static` must be a folder that is new, empty or an earlier page. "
            f"Received: {folder}, {held}."
        )


def _names(folder):
    """Return the sorted names of all files and links in a folder."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(str(path.relative_to(folder)) for path in found)


def _about(content):
    """Return what the page knows of a model."""
    model = content.model
    height, width, channels = model.image_shape
    capsules = int(getattr(model, "capsules", 0) or 0)
    names = content.images.class_names if content.images is not None else None
    settings = getattr(model, "settings", None)
    dataset = str(getattr(settings, "dataset", content.name))
    what = SHOWN.get(content.name, SHOWN.get(dataset, "these images"))
    sentence = (
        f"A neural network has {capsules} parts, its capsules. Each one learned without labels to "
        f"draw one kind of {what}. Choose one, then change its picture."
        if content.has_single
        else f"It has seen {what}. Draw something and see what it says."
    )
    return {
        "page": 1,
        "title": f"{capsules} capsules draw {what}" if content.has_single else model.TITLE,
        "sentence": sentence,
        "name": content.name,
        "kind": "classes" if content.classifies else "capsules",
        "image": [height, width, channels],
        "capsules": capsules,
        "dim": int(getattr(model, "dim", 0) or 0),
        "inside": getattr(model, "CODES", "ball"),
        "class_names": list(map(str, names or ())),
        "preparation": _preparation(model),
        **_frame(content),
    }


def _preparation(model):
    """Return what of a model's `Preparation` is done in the browser."""
    names = ("background", "keeps_proportions", "invert_above", "invert_below")
    return {name: getattr(getattr(model, "preparation", None), name, None) for name in names}


def _frame(content):
    """Return whether ink is light, and the usual size and place of the ink, as shares."""
    images = None if content.images is None else content.images.images[:500]
    if images is None and content.generates:
        images = content.model.sample(200, 0).images
    if images is None:
        return {"light": True, "frame": {"size": 0.75, "x": 0.5, "y": 0.5}}
    pixels = to_pixels(images)
    ink, is_light = ink_of(pixels)
    seen, (x, y) = ink > 0.2, centre(ink)
    # Shares of the sides; a position is that of the middle of a pixel.
    sizes = seen.any(axis=2).mean(axis=1), seen.any(axis=1).mean(axis=1)
    x, y = (x + 0.5) / ink.shape[2], (y + 0.5) / ink.shape[1]
    frame = {
        "size": round(float(np.median(np.maximum(*sizes))), 3),
        "x": round(float(x.mean()), 3),
        "y": round(float(y.mean()), 3),
    }
    return {"light": is_light, "frame": frame}


def _capsules(content, folder, about):
    """Return what the page knows of each capsule; write their thumbnails."""
    model = content.model
    if "decode" not in about["files"] or not (content.has_single or content.classifies):
        return []
    images = None if content.images is None else content.images.images
    found, thumbs = [], []
    for capsule in range(model.capsules):
        if not content.has_single and images is None:
            return []
        codes = codes_of_capsule(model, capsule, images)
        has_codes = bool(len(codes))
        if not has_codes:
            codes = np.zeros((1, model.dim), "float32")
        if model.CODES == "ball":
            codes = with_length(codes, np.linalg.norm(codes, axis=1).mean())
        start = codes[np.square(codes - codes.mean(axis=0)).sum(axis=1).argmin()]
        # Sliders span two deviations. Without codes they span 0.25, as Figure 4 of Sabour et al.
        deviations = codes.std(axis=0) if has_codes else np.full(model.dim, 0.125)
        whole = alone(start[None], model.capsules, capsule)
        changes = effects(model, whole[0], capsule, deviations)
        classes = _classes(content, capsule)
        most = max(8, min(64, CODES // (model.capsules * model.dim)))
        found.append(
            {
                "label": f"{classes[0][0]} {classes[0][1]:.0%}" if classes else "",
                "share": content.share(capsule),
                "classes": classes,
                "start": _rounded(start),
                "codes": [_rounded(code, 3) for code in codes[:most]],
                "deviations": _rounded(deviations),
                "order": np.argsort(-changes, kind="stable").tolist(),
                "directions": [
                    {
                        "name": each.name,
                        "r2": round(each.r2, 3),
                        "vector": _rounded(each.vector),
                        "deviation": round(each.deviation, 4),
                    }
                    for each in shown_directions(model, capsule, codes if has_codes else codes[:0])
                ],
            }
        )
        thumbs.append(decoded(model, whole)[0])
    about["thumbs"] = "thumbs.png"
    picture([np.stack(thumbs)], gap=0, magnify=1).save(folder / "thumbs.png")
    return found


def _classes(content, capsule):
    """Return [class name, share] of a capsule's images, the most frequent class first."""
    if content.classifies:
        return [[content.class_name(capsule), 1.0]]
    pairs = sorted(content.classes(capsule).items(), key=lambda pair: -pair[1])
    return [[name, round(share, 3)] for name, share in pairs[:5]]


def _rounded(values, digits=4):
    return [round(float(value), digits) for value in values]


def _known(content, folder):
    """Write the known images as one picture, and the map of their codes."""
    images = content.images
    if images is None:
        return {}
    shown = images.images
    columns = min(COLUMNS, len(shown))
    rows = [shown[k : k + columns] for k in range(0, len(shown), columns)]
    blank = np.zeros((columns - len(rows[-1]), *shown.shape[1:]), shown.dtype)
    rows[-1] = np.concatenate([rows[-1], blank])
    pixels = [to_pixels(row) for row in rows]
    # A stereo pair has no colours: the first camera is shown.
    pixels = [row[..., :1] if row.shape[-1] == 2 else row for row in pixels]
    picture(pixels, gap=0, magnify=1).save(folder / "images.png")
    has_labels = images.labels is not None and images.labels.ndim == 1
    labels = [content.class_name(label) for label in images.labels] if has_labels else []
    found = {
        "images": {"file": "images.png", "count": len(shown), "columns": columns, "labels": labels}
    }
    if content.winner is not None and len(shown) >= 20:
        # Whitened codes of different images point anywhere; before, distances say something.
        codes = content.codes.get("experts", content.codes["capsules"])
        places = _map(codes.reshape(len(shown), -1), content.winner)
        (folder / "map.json").write_text(json.dumps(places))
        found["map"] = "map.json"
    return found


def _map(codes, winner):
    """Return places in the unit square of codes (N, K), near where codes are alike."""
    from sklearn.manifold import TSNE

    perplexity = min(30, (len(codes) - 1) // 3)
    places = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(codes)
    places = (places - places.min(axis=0)) / np.maximum(np.ptp(places, axis=0), 1e-9)
    x, y = (_rounded(places[:, k]) for k in (0, 1))
    return {"x": x, "y": y, "capsule": winner.tolist()}


def _film(pictures, folder):
    """Copy the pictures that training kept, by stage."""
    if pictures is None:
        return {}
    films: dict[str, list[Path]] = {}
    for path in sorted(Path(pictures).glob("*-*.png")):
        films.setdefault(path.stem.rpartition("-")[0], []).append(path)
    found = []
    for stage, paths in films.items():
        names = []
        for number, path in enumerate(paths):
            names.append(f"film-{stage}-{number}.png")
            (folder / names[-1]).write_bytes(path.read_bytes())
        text = "Images above, and what the part makes of them below, from early to late."
        found.append({"name": stage, "text": text, "files": names})
    return {"film": found} if found else {}
