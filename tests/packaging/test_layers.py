"""Imports go one way: of modules from the bottom of a list to its top, and never around in a circle."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from quadrat._names import PACKAGES
from support.public import HOMES

PACKAGE = Path(__file__).parents[2] / "python" / "quadrat"
PATHS = sorted(PACKAGE.rglob("*.py"))

# From the bottom up: a module imports from its own layer and from those below it. A folder stands for all in it that is
# not named, and `quadrat` for the package itself: what has a public name by way of it imports from the very top.
LAYERS = [
    ("_core",),
    ("support",),
    ("_names", "config"),
    ("ragged",),
    ("input",),
    ("ops",),
    ("batching",),
    ("deferred",),
    ("installed",),
    ("model",),
    ("planning",),
    ("masking", "tokenizers"),
    ("collators", "evaluation", "batching.samplers"),
    ("trl",),
    ("data", "integration", "batching.any_loop"),
    ("quadrat",),
    ("cli",),
    ("__main__",),
]


def name_of(path: Path) -> str:
    """A module's name within the package; `quadrat` for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "quadrat"


MODULES = {name_of(path) for path in PATHS} | {path.stem for path in PACKAGE.glob("_*.pyi") if path.stem != "__init__"}


def home_of(base: str, name: str) -> str:
    """The module that `from quadrat.base import name` loads."""
    module = f"{base}.{name}".removeprefix("quadrat.")
    if base == "quadrat":
        return module if module in MODULES else HOMES.get(name, "quadrat").removeprefix("quadrat.")
    return module if module in MODULES else base.removeprefix("quadrat.")


def imports_of(source: str) -> Iterator[str]:
    """The modules of quadrat that a source loads, wherever in it; with `import quadrat`, by the names it looks up."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    looked_up = {node.value: node for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole module"
            if f"{node.module}.".startswith("quadrat."):
                yield from (home_of(str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("quadrat."):
                    yield alias.name.removeprefix("quadrat.")
                assert not alias.name.startswith("quadrat") or alias.asname is None, "quadrat goes by its name"
        elif isinstance(node, ast.Name) and node.id == "quadrat":
            name, attribute = "", looked_up.get(node)
            while attribute is not None and f"{name}.{attribute.attr}".removeprefix(".") in MODULES:
                name, attribute = f"{name}.{attribute.attr}".removeprefix("."), looked_up.get(attribute)
            yield name or home_of("quadrat", "" if attribute is None else attribute.attr)


GRAPH = {
    name_of(path): set(imports_of(path.read_text())) - {name_of(path)} for path in PATHS if name_of(path) != "quadrat"
}


def layer_of(module: str) -> int:
    """The layer of the longest name that a module is or lies in."""
    named = [
        (len(name), layer)
        for layer, names in enumerate(LAYERS)
        for name in names
        if f"{module}.".startswith(f"{name}.")
    ]
    assert named, f"{module} has no layer"
    return max(named)[1]


def test_each_module_has_a_layer() -> None:
    assert {layer_of(module) for module in MODULES} == set(range(len(LAYERS)))
    assert {name for names in LAYERS for name in names} <= MODULES
    assert {loaded for module in GRAPH for loaded in GRAPH[module]} <= MODULES


@pytest.mark.parametrize("module", GRAPH)
def test_imports_go_one_way(module: str) -> None:
    assert {loaded for loaded in GRAPH[module] if layer_of(loaded) > layer_of(module)} == set()


def test_imports_close_no_circle() -> None:
    TopologicalSorter(GRAPH).prepare()  # raises CycleError, which names them


def test_what_is_loaded_by_name_is_known() -> None:
    """Public names, the kernels that not every build has, and packages of others; the tests above see all else."""
    calling, modules = {"import_module", "__import__"}, []
    for path in PATHS:
        nodes = ast.walk(ast.parse(path.read_text()))
        if calling & {getattr(node, "attr", getattr(node, "id", None)) for node in nodes}:
            modules.append(name_of(path))
    assert modules == ["_names", "installed.originals", "integration.patch", "model.attention", "support.gpu"]


def test_the_package_itself_imports_only_its_version_and_its_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    eager = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in eager} == {
        "quadrat._core", "quadrat._names",
    }  # fmt: skip


def test_the_oracles_need_numpy_only() -> None:
    known = {"__future__", "collections", "collections.abc", "heapq", "itertools", "math", "typing"}
    known |= {"numpy", "numpy.typing"}
    modules = set()
    for path in (PACKAGE.parents[1] / "tests/oracles").glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name for name in modules - known if not name.startswith("oracles.")} == set()


def test_who_loads_a_public_name_by_its_name_is_known() -> None:
    """What replaces classes of the reference by quadrat's, and a method that is short for a function."""
    calling = {module for module, loaded in GRAPH.items() if "_names" in loaded and f"quadrat.{module}" not in PACKAGES}
    assert calling == {"integration.from_transformers", "integration.patch_transformers", "ragged.ragged", "trl"}
