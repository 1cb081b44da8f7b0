"""The rules of the house: no kernel without oracle and test, no include or import against the direction of the data."""

import ast
import functools
import re
from pathlib import Path

import pytest

from quadrat.installed.originals import OF_TRAINER

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "quadrat"
KERNELS = ROOT / "csrc" / "kernels"
RNG = KERNELS / "rng"  # what kernels draw from
SOURCES = sorted(path for path in KERNELS.rglob("*") if path.is_file())
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
CUDA = ROOT / "csrc" / "cuda"
TESTS = ROOT / "tests"
ORACLES = sorted((TESTS / "oracles").glob("*.py"))

# CUDA kernels that do in one launch what several oracles do one after the other.
AT_ONCE = {
    "flatten_columns": {"copy_rows", "separate_rows", "position_ids", "seq_idx", "cu_seqlens"},
    "pad_columns": {"copy_rows", "fill_gaps", "attention_mask"},
    "philox_mask": {"copy_rows", "fill_gaps", "attention_mask", "special_tokens", "philox_mask"},
}


def functions(path):
    return [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]


def public_kernels():
    return [name for path in ORACLES for name in functions(path) if not name.startswith("_")]


def code_of(path):
    """A C++ file without comments, directives and strings: what is left of it is code."""
    return re.sub(r'//[^\n]*|^\s*#[^\n]*|"(?:[^"\\\n]|\\.)*"', "", path.read_text(), flags=re.MULTILINE)


def function_in(code, name, end):
    """A function of this name, at the beginning of a line, with its type, its parameters and what comes after them."""
    kind = r"(?!return\b)(?:template <[^;{]*>\s+)?(?:inline |QUADRAT_\w+ )*[\w:]+(?:<[\w:, ]*>)?[ *&]+"
    return re.search(rf"^{kind}{name}\([^;{{}}]*\)\s*{end}", code, re.MULTILINE)


@functools.cache
def compared(path):
    """The oracles that a test file calls, if it has a property test."""
    tests = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    property_tests = [
        test for test in tests if any("given(" in ast.unparse(decorator) for decorator in test.decorator_list)
    ]
    return {*attributes_of(path, "oracles")} if any(test.name.startswith("test_") for test in property_tests) else set()


@pytest.mark.parametrize("kernel", public_kernels())
def test_no_kernel_lacks_a_twin(kernel):
    """The oracle has a kernel of its name: declared in a header, defined in its source, compared with the oracle."""
    (header,) = [path for path in KERNELS.glob("*.hpp") if function_in(code_of(path), kernel, "[;{]")]
    assert function_in(code_of(header.with_suffix(".cpp")), kernel, "{")
    assert kernel in set().union(
        *map(compared, set(TESTS.glob("kernels/test_*")) - set(TESTS.glob("kernels/test_cuda_*")))
    )


def cuda_kernels():
    """The kernels of each header in csrc/cuda that defines one."""
    definition = re.compile(r"^__global__ void (?:[A-Z_]+ )?(\w+)\(", re.MULTILINE)
    headers = {path.stem: definition.findall(path.read_text()) for path in CUDA.glob("*.cuh")}
    return {name: kernels for name, kernels in headers.items() if kernels}


def launches_of(path):
    """The CUDA kernels that a file of the package launches; other modules have functions of this name, too."""
    name = "launch" if path.as_posix() == "support/gpu.py" else "gpu.launch"
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
            assert isinstance(node.args[0], ast.Constant), "a kernel is named where it is launched"
            yield node.args[0].value


def test_a_cuda_kernel_exists_if_the_package_launches_it():
    assert cuda_kernels() == {name: [name] for name in cuda_kernels()}, "a header is named after its kernel"
    assert {name for path in MODULES for name in launches_of(path)} == set(cuda_kernels())


def attributes_of(path, module):
    """The names of a module that a test, or what it imports from tests/support, looks up."""
    tree = ast.parse(path.read_text())
    yield from (
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == module
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("support."):
            yield from attributes_of(TESTS / f"{node.module.replace('.', '/')}.py", module)


@pytest.mark.parametrize("kernel", cuda_kernels())
def test_a_cuda_kernel_has_a_property_test_against_oracles(kernel):
    """It is named after the kernel, launches it in emulation, and knows the oracles it is made of."""
    (path,) = [path for path in TESTS.glob("kernels/test_cuda_emulated_*.py") if f"test_{kernel}" in functions(path)]
    assert kernel in set(attributes_of(path, "emulated"))
    oracles = AT_ONCE.get(kernel, {kernel})
    assert oracles <= set(public_kernels())
    assert oracles <= set(attributes_of(path, "oracles"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(KERNELS)))
def test_kernels_include_nothing_of_python_torch_or_cuda(path):
    assert path.suffix in (".cpp", ".hpp")
    includes = re.findall(r"^\s*#\s*include\s*(\S+)", path.read_text(), re.MULTILINE)
    for include in includes:
        if include.startswith('"'):
            included = (path.parent / include.strip('"')).resolve()
            assert included.parent in (KERNELS, RNG), include
            assert included.is_file(), include
        else:  # the standard library: names without a folder and without an ending; the intrinsics have one
            assert re.fullmatch(r"<([a-z_0-9]+|[a-z]mmintrin\.h|arm_neon\.h|arm_sve\.h)>", include), include


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_collator_or_sampler_is_looked_up_in_transformers_later_than_at_import(path):
    """`patch_transformers` puts quadrat's own there: a function that looks again would call itself."""
    late = {
        node.attr
        for function in ast.walk(ast.parse((PACKAGE / path).read_text()))
        if isinstance(function, (ast.FunctionDef, ast.Lambda))
        for part in (function.body if isinstance(function.body, list) else [function.body])
        for node in ast.walk(part)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) in ("transformers", "data_collator", "trainer_pt_utils")
    }
    assert not {name for name in late if "ollator" in name or name in OF_TRAINER}


@pytest.mark.parametrize("path", [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")], ids=lambda path: path.stem)
def test_no_version_is_asked_for(path):
    """Versions may be shown; what differs between them is tried, in installed/behaviour.py."""
    tree = ast.parse(path.read_text())
    shown = {part for text in ast.walk(tree) if isinstance(text, ast.JoinedStr) for part in ast.walk(text)}
    asked = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "__version__" and node not in shown
    }
    assert asked <= {"quadrat.__version__", "_core.__version__"}


@pytest.mark.parametrize(
    ("names", "modules"),
    [
        (
            {"data_ptr", "ctypes", "__array_interface__", "untyped_storage"},
            ["support/memory.py", "support/shared.py", "support/tensors.py"],
        ),
        ({"cuda_stream", "_kernels"}, ["support/gpu.py"]),
    ],
    ids=["addresses", "launches"],
)
def test_only_these_modules_handle(names, modules):
    handling = []
    for path in MODULES:
        nodes = list(ast.walk(ast.parse((PACKAGE / path).read_text())))
        identifiers = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        identifiers |= {node.id for node in nodes if isinstance(node, ast.Name)}
        if identifiers & names:
            handling.append(str(path))
    assert handling == modules
