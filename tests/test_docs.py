"""What the documentation names exists: files, functions, settings, options, links."""

import ast
import builtins
import re
import runpy
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from click.testing import CliRunner

from keras_capsule_poe import registry
from keras_capsule_poe.data.composed import find_composed

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "keras_capsule_poe"
PAGES = ("README.md", "CONTRIBUTING.md", "saved_models/README.md")
DOCS = sorted([*(ROOT / page for page in PAGES), *ROOT.glob("docs/**/*.md")])
SOURCES = [
    *PACKAGE.rglob("*.py"),
    *ROOT.glob("cli/**/*.py"),
    *ROOT.glob("tests/models/*.py"),
    *ROOT.glob("benchmarks/research/theory/*.py"),
]
# Names of others.
FOREIGN = set(
    "TFDS_DATA_DIR Tensor KERAS_BACKEND keras pip pytest tf einsum tile map_fn sha256sum History "
    "GridSearchCV groups_train groups_test mean_with_sample_weight "
    "MultiWorkerMirroredStrategy npz npy parquet DatasetDict save_to_disk __MACOSX Thumbs labels "
    "train-images-idx3-ubyte x_train y_train x_test X_train image_id Cat cat".split()
) | set(dir(builtins))
OPTION = r"(?<![\w-])--[a-z][a-z-]+"
# A benchmark and what it is given, which may go on in the next line of its paragraph.
SCRIPT = re.compile(r"(benchmarks/[\w/]+\.py)((?:[^`\n]|\n(?![\n`p]))*)")
# Where a reader puts a name of their own.
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b")


class Definitions(ast.NodeVisitor):
    """Names that files define, `names`, and those of classes and modules by them, `members`."""

    def __init__(self, paths):
        self.names, self.members, self.bases = set(), {}, {}
        for path in paths:
            self.inside = [path.stem if path.stem != "__init__" else path.parent.name]
            self.names.add(self.inside[0])
            self.visit(ast.parse(path.read_text()))

    def add(self, name):
        self.names.add(name)
        self.members.setdefault(self.inside[-1], set()).add(name)

    def visit_ClassDef(self, node):
        self.add(node.name)
        self.bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
        self.inside.append(node.name)
        self.generic_visit(node)
        self.inside.pop()

    def visit_FunctionDef(self, node):
        self.add(node.name)
        for argument in [*node.args.args, *node.args.kwonlyargs]:
            self.add(argument.arg)
        self.generic_visit(node)

    def visit_ImportFrom(self, node):
        # A package's door: what its other files define.
        for alias in node.names:
            self.members.setdefault(self.inside[-1], set()).add(alias.name)

    def visit_Assign(self, node):
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                self.add(target.attr)
        self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if isinstance(node.target, ast.Name):
            self.add(node.target.id)
        self.generic_visit(node)

    def visit_Constant(self, node):
        # Modes, endpoints, words of settings and names of files are strings.
        if isinstance(node.value, str) and len(node.value) < 40:
            self.names.update(re.split(r"[/\s]", node.value))

    def has(self, owner, name):
        if name in self.members.get(owner, ()):
            return True
        return any(self.has(base, name) for base in self.bases.get(owner, ()))


@pytest.fixture(scope="module")
def defined():
    return Definitions(SOURCES)


@pytest.fixture(scope="module")
def settings():
    parts = [part for name in registry.names() for part in registry.settings(name).parts.items()]
    return {f"{name}.{field}" for name, part in parts for field in type(part).model_fields}


def prose(path):
    return re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)


def is_file(name, path):
    """Whether there is such a file or folder, as a reader of the document `path` looks for it."""
    below = (ROOT, path.parent, PACKAGE, PACKAGE / "core", PACKAGE / "models" / "capsnet")
    return any((root / name).exists() for root in below)


def is_defined(name, defined):
    """Whether a dotted name is a module, something in one, or a member of a class."""
    # A reader's model, and a callback's, have the names of our models.
    for owner in ("keras_capsule_poe.", "kcp.", "self.", "model."):
        name = name.removeprefix(owner)
    *owner, last = name.split(".")
    if name in defined.names or not owner:
        of_keras = keras.layers, keras.callbacks, tf.distribute
        return name in defined.names or any(hasattr(module, name) for module in of_keras)
    owners = owner[-1], owner[-1].capitalize()
    path = PACKAGE.joinpath(*owner, last)
    return (
        path.is_dir()
        or path.with_suffix(".py").exists()
        or any(defined.has(owner, last) for owner in owners)
    )


def test_what_is_named_exists(defined, settings):
    missing, commands = [], (ROOT / "Makefile").read_text()
    named = [(path, text) for path in DOCS for text in re.findall(r"`([^`\n]+)`", prose(path))]
    for path, text in named:
        if text.startswith("make "):
            found = f"\n{text.split()[1]}:" in commands
        else:
            # A setting with its value, a call with its arguments: what stands before.
            name = re.split(r"[\s(=]", text.removeprefix("import "))[0].strip("./\"'")
            if not re.fullmatch(r"[A-Za-z_][\w./-]*", name) or PLACEHOLDER.search(text):
                continue
            found = is_file(name, path) or name in settings or is_defined(name, defined)
            found = found or name.split(".")[0] in FOREIGN or find_composed(text)
        if not found:
            missing.append(f"{path}: {text}")
    assert not missing, "\n".join(missing)


@pytest.fixture(scope="module")
def options():
    """Every option in the help of any command."""
    from keras_capsule_poe.cli.main import main

    known = {"--dataset", "--version", "--data-dir"}
    calls = [[command] for command in main.list_commands(None)]
    for arguments in [*calls, *(["train", "--model", name] for name in registry.names())]:
        shown = CliRunner().invoke(main, [*arguments, "--help"]).output
        known |= set(re.findall(r"--[a-z][a-z-]+", shown))
    return known


def test_options_exist(options):
    for path in DOCS:
        text = path.read_text()
        used = set(re.findall(OPTION, SCRIPT.sub("", text)))
        assert used <= options | {"--help"}, path
        for script, arguments in SCRIPT.findall(text):
            shared = (ROOT / script).parent.glob("_*.py")
            known = "".join(source.read_text() for source in (ROOT / script, *shared))
            assert set(re.findall(OPTION, arguments)) <= set(re.findall(OPTION, known)), script


def test_links_lead_somewhere():
    for path in DOCS:
        links = re.findall(r"\]\(([^)\s#]+)", path.read_text())
        broken = [link for link in links if "://" not in link and not (path.parent / link).exists()]
        assert not broken, path


def test_the_table_of_packages_is_the_one_that_is_tested():
    table = {}
    text = (ROOT / "docs/explanation/architecture.md").read_text().partition("## Public API")[0]
    for line in text.splitlines():
        cells = [re.findall(r"`([\w.]+?)/?`", cell) for cell in line.split("|")]
        if len(cells) == 5 and cells[1]:
            for package in cells[1]:
                table[package.removesuffix(".py")] = set(cells[3])
    tested = runpy.run_path(str(ROOT / "tests/test_imports.py"))["MAY"]
    assert table == {package: may - {"errors"} for package, may in tested.items()}


def test_the_readme_s_classifier_is_as_written():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (shown,) = (block for block in blocks if "RoutingLayer(" in block)
    values = {}
    exec(shown, values)
    assert values["model"].output_shape == (None, 10)


# Pages whose lines are run by `make test`; those of the others by `make test-all`.
QUICK = ("callbacks",)


def python_of_pages():
    """Each page with its blocks, which go on from one another."""
    for path in DOCS:
        found = re.findall(r"```python\n(.*?)```", path.read_text(), re.S)
        # Blocks about a model that a reader has trained.
        alone = [b for b in found if "saved_models/" not in b and "model.fit(x)  #" not in b]
        # `tests/serving/test_serve_page.py` runs the blocks of this page.
        if alone and path.name != "deploy.md":
            marks = () if path.stem in QUICK else pytest.mark.long
            yield pytest.param(alone, id=str(path.relative_to(ROOT)), marks=marks)


def test_python_in_pages_compiles():
    for path in DOCS:
        for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.S):
            compile(block, str(path), "exec")


@pytest.mark.filterwarnings("ignore::keras_capsule_poe.errors.TrainingWarning")
# As the page says.
@pytest.mark.filterwarnings("ignore:.*padded to a square:UserWarning")
@pytest.mark.parametrize("blocks", list(python_of_pages()))
def test_python_in_pages_runs(blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks:
        exec(compile(block, "page", "exec"), names)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 900
