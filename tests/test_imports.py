"""Which room may import which: arrows point one way, and no module imports another in a circle."""

import ast
from pathlib import Path

import keras_capsule_poe

ROOT = Path(keras_capsule_poe.__path__[0])
CLI = Path(__file__).parents[1] / "cli"

# A room, and those that it may import. `data.mapping` is the part of data that knows no source.
MAY = {
    "errors": set(),
    "functions": {"errors"},
    "layers": {"functions", "errors"},
    "losses": {"functions"},
    "callbacks": {"functions"},
    "metrics": {"functions"},
    "io": {"errors"},
    "data": {"errors", "io"},
    "models": {"layers", "losses", "metrics", "functions", "errors"},
    "generation": {"data.mapping", "io", "functions", "errors"},
    "serving": {"models", "io", "errors"},
    "evaluation": {
        "generation", "models", "layers", "data", "metrics", "functions", "io", "errors",
    },
    "training": {"data", "io", "errors"},
    "families": {
        "models", "layers", "losses", "callbacks", "metrics", "functions", "training",
        "generation", "serving", "data", "io", "errors",
    },
    "cli": {
        "families", "training", "evaluation", "generation", "serving", "models", "data", "io",
        "errors",
    },
}  # fmt: skip
# The engine, the evaluation, what draws and what serves name no family and no part of one.
NAMELESS = ("training", "evaluation", "generation", "serving", "cli")
PARTS = ("encoder", "decoder", "autoencoder", "primary", "experts", "frames", "capsnet", "rbm")
PACKAGE = "keras_capsule_poe"


def sources():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield path, ".".join(parts)
    for path in sorted(CLI.rglob("*.py")):
        yield path, ".".join(("cli", *path.relative_to(CLI).with_suffix("").parts))


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


def test_every_room_is_in_the_table():
    rooms = {module.split(".")[0] for _, module in sources()} - {"__init__", "_registration"}
    assert rooms == set(MAY)


def test_arrows_point_one_way():
    wrong = []
    for path, module in sources():
        room = module.split(".")[0]
        if room in ("__init__", "_registration"):
            continue
        for target in imported(path):
            other = target.split(".")[0]
            allowed = MAY[room]
            if other in {room, "__version__"} or other in allowed:
                continue
            if any(target.startswith(part) for part in allowed if "." in part):
                continue
            wrong.append(f"{module} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_the_table_has_no_circle():
    order, left = [], {room: {name.split(".")[0] for name in may} for room, may in MAY.items()}
    while left:
        free = [room for room, may in left.items() if may <= set(order)]
        assert free, f"a circle among {sorted(left)}"
        order += free
        left = {room: may for room, may in left.items() if room not in free}


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
    # What is imported inside a function is imported late; a circle through a package's door is
    # one all the same.
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


def test_rooms_that_serve_every_model_name_no_part():
    found = []
    for path, module in sources():
        if module.split(".")[0] not in NAMELESS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", None) or getattr(node, "id", None)
            if name and any(part in name.lower().split("_") for part in PARTS):
                found.append(f"{module}:{node.lineno} names {name}")
    assert not found, "\n".join(found)


def test_no_file_is_long():
    long = [
        f"{path.name} has {lines} lines"
        for path, _ in sources()
        if (lines := len(path.read_text().splitlines())) > 300
    ]
    assert not long, "\n".join(long)
