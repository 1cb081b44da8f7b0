"""The rules of the house: no kernel without oracle and test, no include or import against the direction of the data."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from quadrat import _core, _generators, _memory, _plan, batch, ingest
from quadrat.collators import _masking, recall

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "quadrat"
KERNELS = ROOT / "csrc" / "kernels"
RNG = KERNELS / "rng"  # what kernels draw from
SOURCES = sorted(path for path in KERNELS.rglob("*") if path.is_file())
BINDINGS = ROOT / "csrc" / "bindings"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
TWINS = ["csrc/kernels/{}.hpp", "csrc/kernels/{}.cpp", "tests/kernels/test_{}.py"]
CUDA = ROOT / "csrc" / "cuda"
TESTS = ROOT / "tests"

# CUDA kernels that do in one launch what several oracles do one after the other.
AT_ONCE = {
    "flatten_columns": {"copy_rows", "separate_rows", "position_ids", "seq_idx", "cu_seqlens"},
    "pad_columns": {"copy_rows", "fill_gaps", "attention_mask"},
    "pad_masked": {"copy_rows", "fill_gaps", "attention_mask", "special_tokens", "philox_mask"},
}

# From the bottom up: a layer imports from itself and from those before it. Whatever has no layer here stands above all
# of them: it may import them, and they must not import it.
LAYERS = [
    ("_core", "_cuda", "_extras"),
    ("_generators", "_gpu", "_mappings", "_memory", "_shared"),
    ("_arrays",),
    ("_arrow", "_offsets", "_take", "ingest"),
    ("_plan", "batch", "ops", "ragged"),
    ("rows",),
    ("collators",),
    ("data",),
]
TOP = len(LAYERS)


def functions(path):
    return [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]


def public_kernels():
    return [name for name in functions(PACKAGE / "reference.py") if not name.startswith("_")]


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("kernel", public_kernels())
def test_no_kernel_lacks_a_twin(kernel, twin):
    path = ROOT / twin.format(kernel)
    assert path.is_file()
    if path.suffix != ".py":
        assert re.search(rf"\b{kernel}\b", path.read_text()), "the file is there, but not the name"


def cuda_kernels():
    """The kernels of each header in csrc/cuda that defines one."""
    definition = re.compile(r"^__global__ void (?:[A-Z_]+ )?(\w+)\(", re.MULTILINE)
    found = {path.stem: definition.findall(path.read_text()) for path in CUDA.glob("*.cuh")}
    return {name: kernels for name, kernels in found.items() if kernels}


def launches_of(path):
    """The CUDA kernels that a file of the package launches."""
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("launch", "_gpu.launch"):
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
    assert oracles <= set(attributes_of(path, "reference"))


def test_the_stub_of_cuda_has_its_functions_and_their_parameters():
    emulated = pytest.importorskip("quadrat._emulated", reason="needs a build with QUADRAT_EMULATE=ON")
    stub = ast.parse((PACKAGE / "_cuda.pyi").read_text())
    parameters = {node.name: [one.arg for one in node.args.args] for node in stub.body if hasattr(node, "args")}
    assert parameters.keys() == {"description", "device_count", *cuda_kernels()}
    for name in cuda_kernels():
        signature = getattr(emulated, name).__doc__.splitlines()[0]
        own = [name for name in re.findall(r"(\w+): ", signature) if not name.endswith(("_block", "_blocks"))]
        assert parameters[name] == [*own, "device", "stream"]


def test_no_kernel_header_lacks_its_source_or_its_guard():
    headers, sources = ({path.stem for path in KERNELS.glob(f"*.{end}")} for end in ("hpp", "cpp"))
    assert sources <= headers
    for path in KERNELS.rglob("*.hpp"):
        assert "#pragma once" in path.read_text(), path


def test_kernels_have_one_folder_of_parts():
    assert [path for path in KERNELS.rglob("*") if path.is_dir()] == [RNG]


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


def layer_of(module):
    first = module.split(".")[0]
    return next((number for number, names in enumerate(LAYERS) if first in names), TOP)


def imports_of(path):
    """The modules of quadrat, by their names inside the package, that a file of the package imports."""
    parts = ("quadrat", *path.with_suffix("").parts)
    package = parts[:-1]
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            base = ".".join(filter(None, (base, node.module)))
            names = [f"{base}.{alias.name}" for alias in node.names]
            found = names if base == "quadrat" else [base]
        else:
            continue
        yield from (name.removeprefix("quadrat.") for name in found if name.startswith("quadrat."))


def test_reads_imports_rightly():
    assert {"_core", "_memory", "ingest"} <= set(imports_of(Path("ragged.py")))
    assert {"_memory", "ragged"} <= set(imports_of(Path("ops/pad.py")))
    assert "config" in set(imports_of(Path("__main__.py"))), "imports inside functions count"
    assert len(MODULES) > 10


@pytest.mark.parametrize("path", [path for path in MODULES if str(path) != "__init__.py"], ids=str)
def test_imports_go_one_way(path):
    own = layer_of(path.with_suffix("").parts[0])
    against = [name for name in imports_of(path) if layer_of(name) > own]
    assert against == []


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "collators"], ids=str)
def test_no_collator_is_looked_up_in_transformers_later_than_at_import(path):
    """`patch_transformers` puts quadrat's own there: a function that looks again would call itself."""
    late = {
        node.attr
        for function in ast.walk(ast.parse((PACKAGE / path).read_text()))
        if isinstance(function, (ast.FunctionDef, ast.Lambda))
        for part in (function.body if isinstance(function.body, list) else [function.body])
        for node in ast.walk(part)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("transformers", "data_collator")
    }
    assert not {name for name in late if "ollator" in name}


@pytest.mark.parametrize("path", [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")], ids=lambda path: path.stem)
def test_no_version_is_asked_for(path):
    """Versions may be shown; what differs between them is tried, in collators/_installed.py."""
    tree = ast.parse(path.read_text())
    shown = {part for text in ast.walk(tree) if isinstance(text, ast.JoinedStr) for part in ast.walk(text)}
    asked = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "__version__" and node not in shown
    }
    assert asked <= {"quadrat.__version__", "_core.__version__"}


def test_the_package_itself_imports_only_its_version():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    eager = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in eager} == {
        "__future__", "importlib", "typing", "quadrat._core",
    }  # fmt: skip


def test_the_reference_needs_numpy_only():
    tree = ast.parse((PACKAGE / "reference.py").read_text())
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert found <= {"__future__", "collections.abc", "typing", "numpy", "numpy.typing"}
    assert not [path for path in MODULES if "reference" in imports_of(path)], "an oracle is no part of what it tests"


@pytest.mark.parametrize(
    ("names", "modules"),
    [
        ({"data_ptr", "ctypes", "__array_interface__", "untyped_storage"}, ["_memory.py", "_shared.py"]),
        ({"cuda_stream", "_kernels", "_stream_of"}, ["_gpu.py"]),
    ],
    ids=["addresses", "launches"],
)
def test_only_these_modules_handle(names, modules):
    handling = []
    for path in MODULES:
        nodes = list(ast.walk(ast.parse((PACKAGE / path).read_text())))
        found = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        found |= {node.id for node in nodes if isinstance(node, ast.Name)}
        if found & names:
            handling.append(str(path))
    assert handling == modules


def test_only_the_launcher_imports_the_cuda_kernels():
    named = [str(path) for path in MODULES if re.search(r"\b_cuda\b", (PACKAGE / path).read_text())]
    assert named == ["_gpu.py"]


def enum(path, name):
    """The members of a C++ enum and their numbers."""
    body = re.search(rf"enum (?:class )?{name}[^{{;]*{{(.*?)}};", path.read_text(), re.DOTALL)[1]
    members, number = {}, -1
    for entry in filter(None, map(str.strip, re.sub(r"//[^\n]*", "", body).split(","))):
        member, _, value = entry.partition("=")
        number = int(value, 0) if value else number + 1
        members[member.strip()] = number
    return members


def test_kinds_are_the_same_everywhere():
    header = KERNELS / "kind.hpp"
    kinds = enum(header, "Kind")
    assert tuple(kind.rstrip("_") for kind in kinds) == _core.kinds == _memory.KINDS
    assert list(kinds.values()) == list(range(len(_core.kinds)))
    names = re.search(r"kind_names\[kind_count\] = {(.*?)};", header.read_text(), re.DOTALL)[1]
    assert tuple(re.findall(r'"(\w+)"', names)) == _core.kinds
    sizes = re.search(r"sizes\[kind_count\] = {(.*?)};", header.read_text(), re.DOTALL)[1]
    assert [int(size) for size in sizes.split(",")] == [np.dtype(kind).itemsize for kind in _core.kinds]
    assert [np.dtype(kind).name for kind in _core.kinds] == list(_core.kinds)
    for number, kind in enumerate(_core.kinds):
        assert _memory.kind_of(np.dtype(kind)) == _memory.kind_of(kind) == number
    assert (kinds["bool_"], kinds["int64"]) == (_memory.BOOL, _memory.INT64)
    assert (kinds["float32"], kinds["float64"]) == (_memory.FLOAT32, _memory.FLOAT64)


def test_forms_and_codes_are_the_same_in_python():
    columns = BINDINGS / "columns.hpp"
    forms = {name.removeprefix("form_").upper(): value for name, value in enum(columns, "Form").items()}
    assert forms == {name: getattr(ingest, name) for name in forms}
    assert forms.keys() == {"LIST", "TUPLE", "ARRAY", "TENSOR", "NUMBER", "OTHER", "SCALAR", "TENSOR_NUMBER"}
    codes = enum(KERNELS / "status.hpp", "Code")
    assert (codes["out_of_range"], codes["wrong_type"]) == (ingest.OUT_OF_RANGE, ingest.WRONG_TYPE)
    assert len({ingest.explain((code, 3, 7)) for code in codes.values()}) == len(codes)
    for code in codes.values():
        assert ingest.explain((code, 3, 7)).startswith("row 3, position 7 ")


def test_deferred_batches_are_laid_out_alike():
    source = (BINDINGS / "defer_buffer.hpp").read_text()
    assert int(re.search(r" alignment\s*=\s*(\d+);", source)[1]) == batch._ALIGNMENT
    assert 1 << int(re.search(r" most_in_message\s*=\s*1 << (\d+);", source)[1]) == batch._MOST_IN_MESSAGE


def test_words_are_the_same_in_python():
    words = enum(KERNELS / "mask_tokens.hpp", "Word")
    assert (words["word_begins"], words["word_none"]) == (1, _plan.WORD_NONE)


def test_facts_are_the_same_in_python():
    facts = {name.upper(): value for name, value in enum(BINDINGS / "guard.hpp", "Fact").items()}
    assert facts == {name: getattr(recall, name) for name in facts}
    assert facts.keys() == {"TYPE", "ENTRY", "ABSENT", "ATTRIBUTE", "ITEMS", "CALL", "OWN", "OWN_ABSENT"}


def test_generators_and_words_are_the_same_in_python():
    sources = {name.upper(): value for name, value in enum(BINDINGS / "generator.hpp", "Source").items()}
    assert sources == {name: getattr(_generators, name) for name in sources}
    assert sources.keys() == {"TORCH", "NUMPY", "NUMPY_LEGACY", "PYTHON"}
    words = enum(BINDINGS / "labels.hpp", "WordSource")
    names = {"none": "_NO_WORDS", "offsets": "_OFFSETS", "word_ids": "_WORD_IDS"}
    assert words == {name: getattr(_masking, names[name]) for name in words}
