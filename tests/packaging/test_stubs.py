"""The compiled module has what its stub says: names, parameters, order, defaults; and the numbers of C++."""

import ast
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from quadrat import _core
from quadrat.support import kinds, memory

ROOT = Path(__file__).parents[2]
PACKAGE, CUDA = ROOT / "python" / "quadrat", ROOT / "csrc" / "cuda"
# What a name stands for: the parameters of each overload of a function, as (kind, name, default), or "property",
# "attribute" or the names of a class's bases.
Parameters = list[tuple[str, str, str]]
Described = dict[str, Any]


def parameters(arguments: ast.arguments) -> Parameters:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    entries = [("", argument.arg, default) for argument, default in zip(positional, defaults, strict=True)]
    entries += [
        ("*", argument.arg, default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    entries += [
        (kind, argument.arg, None) for kind, argument in (("*a", arguments.vararg), ("**", arguments.kwarg)) if argument
    ]
    return [(kind, name, "" if default is None else ast.unparse(default)) for kind, name, default in entries]


def described_by_stub(body: list[ast.stmt], inside: str = "") -> Described:
    """By dotted name, all that a stub declares; what begins with one underscore is for its own use."""
    descriptions: Described = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            name = f"{inside}{node.name}"
            if any(ast.unparse(decorator) == "property" for decorator in node.decorator_list):
                descriptions[name] = "property"
            else:
                descriptions.setdefault(name, []).append(parameters(node.args))
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            descriptions[node.name] = [ast.unparse(base) for base in node.bases]
            descriptions |= described_by_stub(node.body, f"{node.name}.")
        elif isinstance(node, ast.AnnAssign):
            descriptions[f"{inside}{ast.unparse(node.target)}"] = "attribute"
    return descriptions


def described_by_docstring(function: Any) -> list[Parameters]:
    """The parameters of each overload, as pybind11 writes them."""
    lines = [line.partition(". ")[2] or line for line in function.__doc__.splitlines()]
    signatures = [line for line in lines if line.startswith(f"{function.__name__}(") and " -> " in line]
    overloads = [line for line in signatures if "*args, **kwargs" not in line] or signatures
    (*trees,) = (ast.parse(f"def {line}: ...").body[0] for line in overloads)
    return [parameters(tree.args) for tree in trees if isinstance(tree, ast.FunctionDef)]


def described_by_module(module: ModuleType | type, inside: str = "") -> Described:
    descriptions: Described = {}
    for name, value in vars(module).items():
        full = f"{inside}{name}"
        if name.startswith("_") and name not in ("__version__", "__init__", "__len__", "__getitem__", "__iter__"):
            continue
        if isinstance(value, type):
            descriptions[name] = [base.__name__ for base in value.__bases__ if base.__module__ == module.__name__]
            descriptions |= described_by_module(value, f"{name}.")
        elif isinstance(value, property):
            descriptions[full] = "attribute" if value.fset else "property"
        elif callable(value):
            signatures = described_by_docstring(value)
            if name != "__init__" or signatures:  # without, Python cannot make an instance
                descriptions[full] = signatures
        else:
            descriptions[full] = "attribute"
    return descriptions


def test_the_stub_is_that_of_the_module() -> None:
    stub = described_by_stub(ast.parse((PACKAGE / "_core.pyi").read_text()).body)
    descriptions = described_by_module(_core)
    assert sorted(stub) == sorted(descriptions)
    assert stub == descriptions


def test_the_kernels_of_cuda_are_called_like_the_emulated_ones() -> None:
    """They take a device and a stream where the emulated ones take blocks."""
    module = pytest.importorskip("quadrat._cuda", reason="needs a build with CUDA")
    emulated = pytest.importorskip("quadrat._testing", reason="needs a build with QUADRAT_EMULATE=ON")
    kernels = {path.stem for path in CUDA.glob("*.cuh") if "__global__" in path.read_text()}
    queued = [("", "device", ""), ("", "stream", "")]
    expected: Described = {"description": [[]], "device_count": [[]]}
    for kernel in kernels:
        (signature,) = described_by_docstring(getattr(emulated, kernel))
        arguments = [parameter for parameter in signature if not parameter[1].endswith(("_block", "_blocks"))]
        assert len(arguments) < len(signature)
        expected[kernel] = [[*arguments, *queued]]
    assert described_by_module(module) == expected


ENUMS = {name: vars(value) for name, value in vars(_core).items() if isinstance(value, SimpleNamespace)}
CONSTANTS = sorted(name for name in vars(_core) if name.isupper() and name not in ENUMS)
CODES = list(ENUMS["CODES"].values())


def test_all_are_ints() -> None:
    assert {type(getattr(_core, name)) for name in CONSTANTS} == {int}
    assert {type(value) for values in ENUMS.values() for value in values.values()} == {int}


@pytest.mark.parametrize("enum", ENUMS)
def test_no_two_of_an_enum_are_the_same(enum: str) -> None:
    assert len(set(ENUMS[enum].values())) == len(ENUMS[enum]) > 2
    assert all(name.isupper() for name in ENUMS[enum])


def test_each_code_is_explained() -> None:
    assert sorted(CODES) == list(range(1, len(CODES) + 1))
    messages = [_core.explain((code, 3, 7)) for code in CODES]
    assert len(set(messages)) == len(CODES)
    assert all(text.startswith("row 3, position 7 ") for text in messages)
    for code in CODES:
        what = _core.explain((code, 3, 7)).removeprefix("row 3, position 7")
        assert _core.explain((code, -1, -1)) == f"the column{what}"
        assert _core.explain((code, 0, -1)) == f"row 0{what}"


def test_what_is_no_code_is_not_explained() -> None:
    with pytest.raises(ValueError, match=f"code {len(CODES) + 1}"):
        _core.explain((len(CODES) + 1, 0, 0))


@pytest.mark.parametrize(("kind", "name"), list(enumerate(_core.kinds)))
def test_a_kind_is_the_dtype_of_its_name(kind: int, name: str) -> None:
    out, address = _core.allocate(memory.interop(), False, (3,), kind)
    assert (out.dtype, address) == (np.dtype(name), out.ctypes.data)
    assert kinds.kind_of(name) == kinds.kind_of(out.dtype) == kind
    columns = _core.Columns()
    columns.add_values([np.array([1, 0], out.dtype), np.array([1], out.dtype)], memory.interop())
    assert columns.describe(0)[2] == 1 << kind
    assert columns.flatten(0, address, kind, 3) is None
    assert out.tolist() == [1, 0, 1]
