"""What is read is data, never a program.

Rejected: pickles, evaluated text, archives unpacked where their names lead, and models loaded
outside of Keras' safe mode, in the sources; and a model with a function of its own in it.
"""

import ast
import contextlib
import io
import tarfile
import tempfile
import zipfile
from pathlib import Path

import keras
import pytest

import keras_capsule_poe as kcp
from keras_capsule_poe import ConvClassifier
from keras_capsule_poe.errors import RunFailed

ROOT = Path(__file__).parents[1]
MODULES = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "tarfile"}
CALLS = {"eval", "exec", "compile", "__import__"}
METHODS = {"extract", "extractall", "unpack_archive", "enable_unsafe_deserialization", "system"}
KEYWORDS = {"allow_pickle": False, "safe_mode": True, "shell": False}


def dangers(source):
    """What in a program might run what it reads."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module.split(".")[0]]
        yield from MODULES.intersection(names)
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", None)
            method = getattr(node.func, "attr", None)
            yield from CALLS.intersection([called]) | METHODS.intersection([called, method])
            for word in node.keywords:
                value = getattr(word.value, "value", None)
                if word.arg in KEYWORDS and value is not KEYWORDS[word.arg]:
                    yield word.arg


@pytest.mark.parametrize("folder", ["keras_capsule_poe", "cli", "examples"])
def test_nothing_runs_what_it_reads(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    found = {(path.name, danger) for path in paths for danger in dangers(path.read_text())}
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "eval(text)",
        "np.load(path, allow_pickle=True)",
        "keras.models.load_model(path, safe_mode=False)",
        "keras.models.load_model(path, safe_mode=how)",
        "archive.extractall(folder)",
        "keras.config.enable_unsafe_deserialization()",
    ],
)
def test_the_search_finds_them(source):
    assert list(dangers(source))


def save_classifier(path, *layers):
    network = keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(3)])
    model = ConvClassifier(network, (4, 4, 1))
    model.build()
    model.save(path)


def test_a_function_in_a_model_is_not_run(tmp_path):
    """A `Lambda` holds bytes of Python, which loading it would make a function of."""
    mark, path = tmp_path / "mark", tmp_path / "model.keras"
    write = keras.layers.Lambda(lambda x, mark=str(mark): [open(mark, "w").close(), x][1])
    save_classifier(path, write)
    assert mark.exists()
    mark.unlink()
    with pytest.raises(RunFailed, match="Lambda|safe_mode|unsafe"):
        kcp.load(path)
    assert not mark.exists()


# Keras tells of each that it leaves out.
@pytest.mark.filterwarnings("ignore:Skipping invalid path")
def test_names_that_climb_lead_nowhere(tmp_path, monkeypatch):
    """Members of a model's file that are named as if they lay above where it is unpacked."""
    folder = tmp_path / "some" / "folder"
    folder.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    save_classifier(folder / "model.keras")
    with zipfile.ZipFile(folder / "model.keras", "a") as archive:
        for name in ("../evil.txt", "assets/../../../evil.txt", f"{tmp_path}/evil.txt"):
            archive.writestr(name, "evil")
    # Keras 3.12, the last one for Python 3.10, stumbles over its own message about them.
    with contextlib.suppress(AttributeError):
        kcp.load(folder)
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_archives_of_data_sets_lead_nowhere(tmp_path, ending):
    import tensorflow_datasets as tfds

    names = ("good.txt", "../evil.txt", "a/../../evil.txt", f"{tmp_path}/evil.txt")
    path = tmp_path / f"images.{ending}"
    if ending == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "words")
    else:
        with tarfile.open(path, "w:gz") as archive:
            link = tarfile.TarInfo("way")
            link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
            archive.addfile(link)
            for name in (*names, "way/evil.txt"):
                member = tarfile.TarInfo(name)
                member.size = 5
                archive.addfile(member, io.BytesIO(b"words"))
    manager = tfds.download.DownloadManager(download_dir=tmp_path / "downloads")
    folder = Path(manager.extract(path))
    assert (folder / "good.txt").read_text() == "words"
    # Without the link, "way" is a folder like others.
    outside = [path for path in tmp_path.rglob("evil*") if folder not in path.parents]
    assert not outside and not (folder / "way").is_symlink()
    assert {str(path.relative_to(folder)) for path in folder.rglob("evil*")} <= {"way/evil.txt"}


def test_model_cards_are_read_to_see_what_may_be_replaced_only():
    """The names of the card's file and of its constant, in what is read of it."""
    for path in [*(ROOT / "keras_capsule_poe").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        uses = [line for line in path.read_text().splitlines() if "CARD" in line]
        assert path.name == "cards.py" or not uses
        assert path.name == "cards.py" or "model_card.json" not in path.read_text()
    text = (ROOT / "keras_capsule_poe" / "cards.py").read_text()
    assert text.count("read_json(") == 1
    assert "read_json(" in text[text.index("def _what_is_lost") :]
