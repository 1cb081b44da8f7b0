"""What `import quadrat` brings along, and what it leaves for later."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import quadrat

HEAVY = ("torch", "transformers", "datasets", "pandas", "pyarrow", "ray", "rich", "matplotlib")
# Makes the modules named in `blocked` unimportable, as if they were not installed.
BLOCK = """
import importlib.abc, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def run(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def loaded_after(code):
    return run(f"{code}\nimport sys\nprint(*({{name.partition('.')[0] for name in sys.modules}} & set({HEAVY})))")


@pytest.mark.parametrize("code", [
    "import quadrat",
    "import quadrat; dir(quadrat); quadrat.__version__",
    "import quadrat.data",
    "import quadrat; quadrat.show_config()",
    "import quadrat; quadrat.pad([[1], [2, 3]]); quadrat.attention_mask([1, 2])",
    "import quadrat; quadrat.Ragged.from_rows([[1], [2, 3]]).to_lists()",
    "import quadrat.reference, quadrat.ingest, quadrat._memory, quadrat.ops.pad, quadrat.ops.mask, quadrat.__main__",
    "import quadrat.bench.waste, quadrat.bench.advice",
])  # fmt: skip
def test_loads_nothing_heavy(code):
    assert loaded_after(code) == []


def test_says_what_arrow_needs():
    code = f"""
blocked = {{"pyarrow", "torch"}}
{BLOCK}
import quadrat
try:
    quadrat.Ragged.from_rows([[1]]).to_arrow()
except ModuleNotFoundError as error:
    assert error.name == "pyarrow"
    assert "to_arrow needs pyarrow" in str(error) and "pip install" in str(error), error
else:
    raise AssertionError("an Arrow array without pyarrow")
"""
    run(code)


def test_loads_torch_only_for_tensors():
    assert loaded_after("import quadrat; quadrat.pad([[1]], return_tensors='pt')") == ["torch"]


def test_torch_may_be_loaded_later():
    code = """
import quadrat
before = quadrat.pad([[1], [2, 3]])
import torch
after = quadrat.pad([torch.tensor([1]), torch.tensor([2, 3])])
assert type(after) is torch.Tensor
assert after.tolist() == before.tolist()
assert quadrat.attention_mask(quadrat.Ragged(torch.arange(3), torch.tensor([0, 1, 3]))).tolist() == [[1, 0], [1, 1]]
"""
    run(code)


def test_works_without_torch_and_transformers():
    code = f"""
blocked = {{"torch", "transformers"}}
{BLOCK}
import quadrat
assert quadrat.pad([[1], [2, 3]]).tolist() == [[1, 0], [2, 3]]
assert quadrat.attention_mask([1, 2]).tolist() == [[1, 0], [1, 1]]
assert quadrat.Ragged.from_rows([[1]]).to_lists() == [[1]]
quadrat.show_config()
for name in quadrat.__all__:
    try:
        getattr(quadrat, name)
    except ModuleNotFoundError as error:
        assert error.name in blocked, error
        assert f"quadrat.{{name}} needs {{error.name}}" in str(error), error
        assert "pip install" in str(error), error
        print(name)
try:
    quadrat.pad([[1]], return_tensors="pt")
except ModuleNotFoundError as error:
    assert error.name == "torch"
else:
    raise AssertionError("a tensor without torch")
"""
    failed = run(code)
    assert "DataCollatorWithPadding" in failed
    assert not {"pad", "attention_mask", "Ragged", "show_config", "__version__"} & set(failed)


def test_says_what_ray_data_is_needed_for():
    code = f"""
blocked = {{"ray"}}
{BLOCK}
import quadrat.data
try:
    import quadrat.data.ray
except ModuleNotFoundError as error:
    assert error.name.partition(".")[0] == "ray", error
    assert "quadrat.data.ray needs Ray Data 2.47 or later" in str(error), error
    assert "pip install quadrat[ray]" in str(error), error
else:
    raise AssertionError("Ray was found")
"""
    run(code)


def test_works_where_torch_is_shut_out():
    # The usual way to test without a module: None in sys.modules.
    run("import sys; sys.modules['torch'] = None; import quadrat; assert quadrat.pad([[1], []]).tolist() == [[1], [0]]")


def test_lists_what_it_has():
    assert dir(quadrat) == sorted(quadrat.__all__)
    assert len(set(quadrat.__all__)) == len(quadrat.__all__)
    assert set(quadrat._HOMES) == set(quadrat.__all__) - {"__version__"}


@pytest.mark.parametrize("name", quadrat.__all__)
def test_every_name_resolves(name):
    value = getattr(quadrat, name)
    assert getattr(quadrat, name) is value
    if name != "__version__":
        assert value is getattr(importlib.import_module(quadrat._HOMES[name]), name)
        assert value.__name__ == name
        assert value.__doc__


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(quadrat.__file__).read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {alias.name: node.module for node in guarded.body for alias in node.names}
    assert seen == quadrat._HOMES


@pytest.mark.parametrize("name", ["nonsense", "Pad", "DataCollator", "_nonsense"])
def test_unknown_names_are_attribute_errors(name):
    with pytest.raises(AttributeError, match=f"module 'quadrat' has no attribute '{name}'"):
        getattr(quadrat, name)
    assert not hasattr(quadrat, name)
    with pytest.raises(ImportError):
        exec(f"from quadrat import {name}")


def test_star_import_gives_what_all_lists():
    names = {}
    exec("from quadrat import *", names)
    assert set(quadrat.__all__) <= set(names)
