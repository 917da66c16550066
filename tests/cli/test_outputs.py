"""One gate for what commands write.

Rejected: a mark that a reader of the format sees; a user's file, another command's output, a file
of a run, of its images or of a store that is replaced or joined by an output.
"""

import json
from pathlib import Path

import click
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from keras_capsule_poe.cli import options
from keras_capsule_poe.errors import CapspoeError
from keras_capsule_poe.explorer import page
from keras_capsule_poe.figures import save_figure
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.marks import is_output, marked_output
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.io.records import write_json, write_record


def picture(path):
    save_grid(path, [np.linspace(0, 1, 64).reshape(1, 8, 8, 1)])


def drawing(path):
    # As many images as lists of contents get long.
    figure = Figure((1, 1))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for _ in range(300):
        axes.imshow(np.ones((2, 2)))
    save_figure(path, figure)


def page_of_text(path):
    with atomic_write(path) as temporary:
        temporary.write_text("<html></html>\n")


def arrays(path):
    with atomic_write(path, suffix=".npz") as temporary:
        np.savez(temporary, images=np.ones(3))


WRITERS = {
    ".png": picture, ".jpg": picture, ".JPEG": picture, ".webp": picture, ".pdf": drawing,
    ".svg": drawing, ".npz": arrays, ".html": page_of_text,
    ".json": lambda path: write_json(path, {"a": 1}),
}  # fmt: skip
# Pictures and pages may be replaced by another command.
DATA = (".npz", ".json")


@pytest.mark.parametrize("kind", WRITERS)
def test_a_mark_changes_nothing_that_a_file_holds(tmp_path, kind):
    path, plain = tmp_path / f"new{kind}", tmp_path / f"plain{kind}"
    WRITERS[kind](plain)
    marked_output(path, "sample")
    WRITERS[kind](path)
    assert is_output(path, "sample")
    assert is_output(path, "reconstruct") == (kind not in DATA)
    assert not is_output(plain, "sample")
    if WRITERS[kind] is picture:
        np.testing.assert_array_equal(np.asarray(Image.open(path)), np.asarray(Image.open(plain)))
    elif kind == ".npz":
        assert np.load(path)["images"].tolist() == [1, 1, 1]
    elif kind == ".json":
        found = json.loads(path.read_text())
        assert found.pop("written_by") and found == {"a": 1}
    else:
        assert path.read_bytes()[:12] == plain.read_bytes()[:12]


@pytest.mark.parametrize("kind", [".png", ".jpg", ".pdf", ".svg"])
def test_figures_and_earlier_pictures_are_recognised(tmp_path, kind):
    path = tmp_path / f"a{kind}"
    marked_output(path, "traverse")
    save_figure(path, Figure((1, 1)))
    assert is_output(path, "sample")
    # As earlier versions marked pictures, at their end.
    text = b"written by keras-capsule-poe, capspoe x\n"
    (tmp_path / "b").write_bytes(b"%PDF" + bytes(10**6) + text)
    assert is_output(tmp_path / "b", "sample")


@pytest.mark.parametrize("values", [{}, [], [1], {"written": {}}])
def test_json_stays_json(tmp_path, values):
    marked_output(tmp_path / "a.json", "evaluate")
    write_json(tmp_path / "a.json", values)
    found = json.loads((tmp_path / "a.json").read_text())
    assert found == values or (found.pop("written_by") and found == values)


@pytest.fixture
def run(tmp_path):
    """A folder with a run, its images and a store."""
    for name in ("D/a.png", "train/cats/a.png", "test/cats/a.png", "labels.csv", "R/1/a", "mine/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    for place in ("R/encoder/done.json", "other/encoder/done.json", "store/D-1/store.json"):
        (tmp_path / place).parent.mkdir(parents=True)
        write_record(tmp_path / place, {})
    named = {"train_dir": "train", "test_dir": "test", "labels": "labels.csv"}
    paths = {name: str(tmp_path / place) for name, place in named.items()}
    config = {"dataset": "D", "model": "capsules", "held_out": 1}
    values = {"config": config, "data_path": str(tmp_path / "D"), "paths": paths}
    write_record(tmp_path / "R" / "run.json", values)
    write_record(tmp_path / "other" / "run.json", values)
    (tmp_path / "link").symlink_to(tmp_path / "test")
    return tmp_path


def check(run, command="sample", force=False, **given):
    context = click.Context(click.Command(command), info_name=command)
    context.params = {name: run / value for name, value in given.items()}
    context.meta[options._FORCED] = force
    with context:
        options.check_outputs(run / "R")


@pytest.mark.parametrize(
    "name, value",
    [
        *(("out", name) for name in (
            "D/new.png", "D/a.png", "D/deep/new.png", "train/cats/new.png", "test/cats/a.png",
            "test/cats/new.png", "test/new.npz", "link/cats/new.png", "labels.csv", "R/run.json",
            "R/encoder/x.png", "R/1/x.png", "other/encoder/x.png", "store/D-1/x.png",
            "R/model.keras", "mine/../test/x.png",
        )),
        *(("json_path", name) for name in ("labels.csv", "R/encoder/m.json", "store/D-1/m.json")),
        *((option, name) for option in ("out_dir", "hub_dir", "static") for name in (
            "D", "train/cats", "test/new", "link", "R/encoder", "R/1", "R/pictures",
            "store/D-1", "other/encoder/x",
        )),
    ],
)  # fmt: skip
@pytest.mark.parametrize("force", [False, True])
def test_no_output_joins_what_a_run_knows(run, name, value, force):
    with pytest.raises(CapspoeError, match="choose another path") as error:
        check(run, force=force, **{name: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "given",
    [{"out": "new.png"}, {"out": "mine/new.npz"}, {"out": "R/x.png"}, {"out": "R/pictures/x.png"},
     {"json_path": "m.json"}, {"out_dir": "R"}, {"out_dir": "exports"}, {"out_dir": "R/exports"},
     {"hub_dir": "hub"}, {"static": "page"}, {"out": "other/x.png"},
     {"json_path": "D/m.json"}, {"out": "test/page.html"}],
)  # fmt: skip
def test_other_places_are_taken(run, given):
    check(run, **given)


@pytest.mark.parametrize("kind", WRITERS)
def test_an_existing_file_is_replaced_if_it_is_an_earlier_output(run, kind):
    path, name = run / f"x{kind}", "json_path" if kind == ".json" else "out"
    for write in (WRITERS[kind], Path.touch):
        write(path)
        with pytest.raises(CapspoeError, match="`?--force`?"):
            check(run, **{name: path.name})
    check(run, force=True, **{name: path.name})
    WRITERS[kind](path)
    check(run, **{name: path.name})
    if kind in DATA:
        with pytest.raises(CapspoeError, match="earlier output of capspoe reconstruct"):
            check(run, command="reconstruct", **{name: path.name})


def test_commands_replace_their_own_files_alone(asked, tiny_model, tmp_path):
    out = tmp_path / "d.npz"
    np.savez(out, images=np.ones((3, 8, 8)), labels=np.arange(3))
    before = out.read_bytes()
    command = ("sample", "--model-dir", tiny_model, "--n", 2, "--out", out)
    asked(*command, code=2, last=("must be a new file", "--force"))
    assert out.read_bytes() == before
    for options_ in (("--force",), ()):
        asked(*command, *options_, last="Wrote")
    asked("encode", out, "--model-dir", tiny_model, "--out", out, code=2)


PAGE = {"page": 1, "written": ["model.json", "index.html", "files/a.onnx"]}


@pytest.mark.parametrize(
    "about, more, is_taken",
    [
        (PAGE, (), True), ({"page": 1}, ("old.png",), True), (None, (), True),
        (PAGE, ("mine.txt",), False), (PAGE, ("files/mine.txt",), False), (None, ("a",), False),
        ({"pages": 1}, (), False), (["page"], (), False), ({"page": 1, "written": 5}, (), False),
    ],
)  # fmt: skip
def test_a_page_replaces_an_earlier_page_alone(tmp_path, monkeypatch, about, more, is_taken):
    monkeypatch.setattr(page, "SCRIPTS", ())
    for name in (*(PAGE["written"] if about else ()), *more):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    if about:
        (tmp_path / "model.json").write_text(json.dumps(about))
    if is_taken:
        return page.check_folder(tmp_path)
    with pytest.raises(CapspoeError, match=f"other files: .*{(*more, 'model.json')[0]}"):
        page.check_folder(tmp_path)


def test_links_and_files_are_no_earlier_page(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "SCRIPTS", ())
    (tmp_path / "a").symlink_to(tmp_path / "nowhere")
    with pytest.raises(CapspoeError, match="other files: a"):
        page.check_folder(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(CapspoeError, match="file, a file"):
        page.check_folder(tmp_path / "file")
