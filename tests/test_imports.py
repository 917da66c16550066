"""Which package may import which: imports point one way, and modules do not import in circles."""

import ast
from pathlib import Path

import keras_capsule_poe

ROOT = Path(keras_capsule_poe.__path__[0])
CLI = Path(__file__).parents[1] / "cli"
PACKAGE = "keras_capsule_poe"

KERAS = {"core", "losses", "metrics", "callbacks", "layers", "errors"}
ENGINE = {"training", "distributed", "data", "io", "errors"}
VIEWS = {"plotting", "directions", "figures", "charts", "serving"}
BASE = {*KERAS, *ENGINE, *VIEWS}
# A package, and those that it may import.
MAY = {
    "errors": set(),
    "former_names": {"errors"},
    "core": {"errors"},
    "functions": {"core", "models.matrix_capsules"},
    "losses": {"core"},
    "metrics": {"core"},
    "callbacks": {"core"},
    "layers": {"core", "errors"},
    "io": {"errors"},
    "data": {"io", "errors"},
    "distributed": {"data", "io", "errors"},
    "training": {"distributed", "data", "io", "errors"},
    "plotting": {"directions", "data", "core", "io", "errors"},
    "directions": {"data", "core", "errors"},
    "figures": {"plotting", "data", "core", "io", "errors"},
    "charts": {"data", "core", "io"},
    "templates": set(),
    "cards": {"templates", "io", "errors"},
    "serving": {"cards", "io", "errors"},
    "quantization": {"data"},
    "portable": {"cards", "quantization", "serving", "io", "errors"},
    "hub": {"cards", "portable", "serving", "io", "errors"},
    "models.base": BASE,
    "models.boltzmann": {"models.base", *BASE},
    "models.neurons": {"models.base", "models.boltzmann", *BASE},
    "models.capsule_poe": {"models.base", *BASE},
    "models.capsnet": {"models.base", *BASE},
    "models.matrix_capsules": {"models.base", *BASE},
    "registry": {"errors"},
    "sklearn": {
        "models.base", "models.boltzmann", "models.capsule_poe", "models.neurons", "core",
        "training", "errors",
    },
    "pretrained": {"registry", "models.base", "training", "data", "io", "errors"},
    "runs": {"registry", "pretrained", "training", "io", "core", "errors"},
    "explorer": {"directions", "portable", "serving", "data", "core", "io", "errors"},
    "evaluation": {
        "models.base", "models.boltzmann", "layers", "core", "metrics", "data", "directions",
        "plotting", "templates", "training", "io", "errors",
    },
    "cli": {
        "registry", "evaluation", "models.base", "training", "distributed", "data", "io", "core",
        "errors", "pretrained", "portable", "quantization", "hub", "explorer", "runs", *VIEWS,
    },
}  # fmt: skip
# The engine, the evaluation, what draws and what serves name no model family and no part of one.
NAMELESS = (
    "training", "distributed", "evaluation", "cli", "cards", "portable", "quantization", "hub",
    *VIEWS,
)  # fmt: skip
PARTS = ("encoder", "decoder", "autoencoder", "primary", "experts", "frames", "capsnet", "rbm")


def sources():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield path, ".".join(parts)
    for path in sorted(CLI.rglob("*.py")):
        yield path, ".".join(("cli", *path.relative_to(CLI).with_suffix("").parts))


def package_of(module):
    """The row of the table that a module belongs to."""
    parts = module.split(".")
    if parts[0] == "models" and len(parts) > 1:
        return f"models.{parts[1]}"
    return parts[0]


def imported(path):
    """Modules of ours that a file imports anywhere in it, without the package's name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            module = node.module.removeprefix(PACKAGE).lstrip(".")
            for alias in node.names:
                yield f"{module}.{alias.name}" if module else alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(f"{PACKAGE}."):
                    yield alias.name.removeprefix(f"{PACKAGE}.")


# For every package: `_types` and `_keywords` hold names of types alone, `keras_private` private
# names of Keras.
ANYWHERE = {"__version__", "_keywords", "_types", "former_names", "keras_private"}
OUTSIDE = {"__init__", "_startup", "_types", "keras_private", "models.__init__"}


def test_every_package_is_in_the_table():
    assert {package_of(module) for _, module in sources()} - OUTSIDE == set(MAY)


def test_imports_point_one_way():
    wrong = []
    for path, module in sources():
        package = package_of(module)
        if package in OUTSIDE:
            continue
        for target in imported(path):
            if package_of(target) in {package, *ANYWHERE, *MAY[package]}:
                continue
            # A row may name a module of a package.
            if any(f"{target}.".startswith(f"{part}.") for part in MAY[package]):
                continue
            wrong.append(f"{module} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_the_table_has_no_circle():
    # `serving` and `models.base` meet in one module alone, which imports neither.
    may = {name: {part for part in parts if part in MAY} for name, parts in MAY.items()}
    order = []
    while may:
        free = [package for package, parts in may.items() if parts <= set(order)]
        assert free, f"a circle among {sorted(may)}"
        order += free
        may = {package: parts for package, parts in may.items() if package not in free}


def test_no_module_imports_another_in_a_circle():
    known = {module.removesuffix(".__init__") for _, module in sources()}
    edges = {}
    for path, module in sources():
        targets = set()
        for target in imported(path):
            # `from a.b import c` names a module or something in one.
            found = target if target in known else target.rpartition(".")[0]
            targets.add(found)
        edges[module.removesuffix(".__init__")] = targets & known
    state = {}

    def visit(module, trail):
        if state.get(module) == "done":
            return
        assert state.get(module) != "open", f"circle: {' -> '.join([*trail, module])}"
        state[module] = "open"
        for target in sorted(edges[module] - {module}):
            visit(target, [*trail, module])
        state[module] = "done"

    for module in sorted(edges):
        visit(module, [])


def test_packages_that_serve_every_model_name_no_part():
    found = []
    for path, module in sources():
        if package_of(module) not in NAMELESS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", None) or getattr(node, "id", None)
            if name and any(part in name.lower().split("_") for part in PARTS):
                found.append(f"{module}:{node.lineno} names {name}")
    assert not found, "\n".join(found)
