"""The stubs of the compiled modules say what the modules have: names, parameters, their order and their defaults."""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from quadrat import _core

ROOT = Path(__file__).parents[2]
PACKAGE, CUDA = ROOT / "python" / "quadrat", ROOT / "csrc" / "cuda"

# What a name stands for: the parameters of each overload of a function, as (kind, name, default), or "property",
# "attribute" or the names of a class's bases.
Parameters = list[tuple[str, str, str]]
Described = dict[str, Any]


def parameters(arguments: ast.arguments) -> Parameters:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    found = [("", one.arg, default) for one, default in zip(positional, defaults, strict=True)]
    found += [("*", one.arg, default) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    found += [(kind, one.arg, None) for kind, one in (("*a", arguments.vararg), ("**", arguments.kwarg)) if one]
    return [(kind, name, "" if default is None else ast.unparse(default)) for kind, name, default in found]


def described_by_stub(body: list[ast.stmt], inside: str = "") -> Described:
    """By dotted name, all that a stub declares; what begins with one underscore is for its own use."""
    found: Described = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            name = f"{inside}{node.name}"
            if any(ast.unparse(one) == "property" for one in node.decorator_list):
                found[name] = "property"
            else:
                found.setdefault(name, []).append(parameters(node.args))
        elif isinstance(node, ast.ClassDef):
            found[node.name] = [ast.unparse(base) for base in node.bases]
            found |= described_by_stub(node.body, f"{node.name}.")
        elif isinstance(node, ast.AnnAssign):
            found[f"{inside}{ast.unparse(node.target)}"] = "attribute"
    return found


def described_by_docstring(function: Any) -> list[Parameters]:
    """The parameters of each overload, as pybind11 writes them."""
    lines = [line.partition(". ")[2] or line for line in function.__doc__.splitlines()]
    signatures = [line for line in lines if line.startswith(f"{function.__name__}(") and " -> " in line]
    overloads = [line for line in signatures if "*args, **kwargs" not in line] or signatures
    (*trees,) = (ast.parse(f"def {line}: ...").body[0] for line in overloads)
    return [parameters(tree.args) for tree in trees if isinstance(tree, ast.FunctionDef)]


def described_by_module(module: ModuleType | type, inside: str = "") -> Described:
    found: Described = {}
    for name, value in vars(module).items():
        full = f"{inside}{name}"
        if name.startswith("_") and name not in ("__version__", "__init__", "__len__", "__getitem__", "__iter__"):
            continue
        if isinstance(value, type):
            found[name] = [base.__name__ for base in value.__bases__ if base.__module__ == module.__name__]
            found |= described_by_module(value, f"{name}.")
        elif isinstance(value, property):
            found[full] = "attribute" if value.fset else "property"
        elif callable(value):
            signatures = described_by_docstring(value)
            if name != "__init__" or signatures:  # without, Python cannot make an instance
                found[full] = signatures
        else:
            found[full] = "attribute"
    return found


def stub_of(name: str) -> Described:
    return described_by_stub(ast.parse((PACKAGE / f"{name}.pyi").read_text()).body)


def test_reads_what_pybind11_writes() -> None:
    found = described_by_module(_core)
    assert found["Columns.count"] == [[("", "self", ""), ("", "index", "")]]
    assert ("", "falls_back", "False") in found["Recipe.__init__"][0]
    assert len(found["TableRows.__init__"]) == 2
    assert found["CausalLabels"] == ["Labels"]
    assert (found["Interop.may_be_worker"], found["Table.names"]) == ("attribute", "property")


@pytest.mark.parametrize("name", ["_core", "_cuda"])
def test_a_stub_is_that_of_its_module(name: str) -> None:
    module = pytest.importorskip(f"quadrat.{name}", reason="needs a build with CUDA")
    stub, found = stub_of(name), described_by_module(module)
    assert sorted(stub) == sorted(found)
    assert stub == found


def test_the_stub_of_cuda_is_that_of_the_emulated_kernels() -> None:
    """They take blocks where `_cuda` takes a device and a stream."""
    emulated = pytest.importorskip("quadrat._testing", reason="needs a build with QUADRAT_EMULATE=ON")
    kernels = {path.stem for path in CUDA.glob("*.cuh") if "__global__" in path.read_text()}
    queued = [("", "device", ""), ("", "stream", "")]
    expected: Described = {"description": [[]], "device_count": [[]]}
    for kernel in kernels:
        (found,) = described_by_docstring(getattr(emulated, kernel))
        own = [one for one in found if not one[1].endswith(("_block", "_blocks"))]
        assert len(own) < len(found)
        expected[kernel] = [[*own, *queued]]
    assert stub_of("_cuda") == expected
