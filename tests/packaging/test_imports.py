"""What `import quadrat` brings along, and what it leaves for later."""

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

import quadrat
from quadrat.support.extras import EXTRAS
from support.isolated import words
from support.public import EVERYWHERE, HOMES, PUBLIC

HEAVY = ("torch", "transformers", "datasets", "pandas", "pyarrow", "rich", "matplotlib")
# Makes the modules named in `blocked` unimportable, as if they were not installed.
BLOCK = """
import importlib.abc, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def loaded_after(code):
    return words(f"{code}\nimport sys\nprint(*({{name.partition('.')[0] for name in sys.modules}} & set({HEAVY})))")


@pytest.mark.parametrize("code", [
    "import quadrat",
    "import quadrat; dir(quadrat); quadrat.__version__",
    "import quadrat.data",
    "from quadrat.config import show_config; show_config()",
    "import quadrat; quadrat.pad([[1], [2, 3]]); quadrat.attention_mask([1, 2])",
    "import quadrat; quadrat.Ragged.from_rows([[1], [2, 3]]).to_lists()",
    "import quadrat.support.columns, quadrat.support.memory, quadrat.ops.pad",
    "import quadrat.__main__",
    "import quadrat.cli.waste, quadrat.cli.corpus",
])  # fmt: skip
def test_loads_nothing_heavy(code):
    assert loaded_after(code) == []


# Without a package: code that needs it, and what the error says.
NEEDS = {
    "torch": {
        "quadrat.Ragged.from_rows([[1]]).to_nested()": "Ragged.to_nested needs torch: pip install torch",
        "quadrat.Ragged.from_rows([[1]]).to('cpu')": "Ragged.to needs torch: pip install torch",
        "quadrat.Ragged.from_rows([[1]]).to_padded(return_tensors='pt')": "'pt' needs torch: pip install torch",
        "quadrat.Ragged.from_rows([[1]], return_tensors='pt')": "return_tensors='pt' needs torch: pip install torch",
        "quadrat.pad([[1]], return_tensors='pt')": "return_tensors='pt' needs torch: pip install torch",
        "quadrat.flatten([[1]], return_tensors='pt')": "return_tensors='pt' needs torch: pip install torch",
        "quadrat.attention_mask([1], return_tensors='pt')": "return_tensors='pt' needs torch: pip install torch",
        "quadrat.deferred.DeferredBatch({})": 'DeferredBatch needs torch: pip install "quadrat[transformers]"',
    },
    "transformers": {
        "import quadrat.collators.padding": 'quadrat.collators needs transformers: pip install "quadrat[transformers]"',
        "import quadrat.evaluation.containers": "quadrat.evaluation.containers needs transformers: pip install "
        '"quadrat[transformers]"',
        "quadrat.deferred.DeferredBatch({})": 'DeferredBatch needs transformers: pip install "quadrat[transformers]"',
    },
    "tokenizers": {
        "quadrat.DataCollatorWithPadding": "quadrat.DataCollatorWithPadding needs tokenizers: pip install "
        '"quadrat[transformers]"',
    },
    "datasets": {
        "quadrat.ArrowDataset": 'quadrat.ArrowDataset needs datasets: pip install "quadrat[datasets]"',
        "import quadrat.data.arrow": 'quadrat.data.arrow needs datasets: pip install "quadrat[datasets]"',
    },
    "pyarrow": {
        "quadrat.Ragged.from_rows([[1]]).to_arrow()": "Ragged.to_arrow needs pyarrow: pip install pyarrow",
        "quadrat.ArrowDataset": 'quadrat.ArrowDataset needs pyarrow: pip install "quadrat[datasets]"',
    },
    "trl": {
        "quadrat.trl": "quadrat.trl needs trl: pip install trl",
        "quadrat.trl.patch_trl()": "quadrat.trl needs trl: pip install trl",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("package", NEEDS)
def test_says_what_is_missing_and_how_to_install_it(package):
    words(f"""
blocked = {{{package!r}}}
{BLOCK}
import quadrat
for code, said in {NEEDS[package]!r}.items():
    try:
        exec(code)
    except ModuleNotFoundError as error:
        assert error.name.partition(".")[0] == {package!r}, error
        assert said in str(error), error
        assert str(error).startswith(said) or said.startswith("'"), error
    else:
        raise AssertionError(code)
""")


@pytest.mark.slow
def test_every_name_says_what_it_needs():
    failed = words(f"""
blocked = {{"torch"}}
{BLOCK}
import importlib
import quadrat.config
assert quadrat.attention_mask([1, 2]).tolist() == [[1, 0], [1, 1]]
assert quadrat.Ragged.from_rows([[1]]).to_lists() == [[1]]
quadrat.config.show_config()
for package in {[package.__name__ for package in PUBLIC]!r}:
    module = importlib.import_module(package)
    for name in module.__all__:
        try:
            getattr(module, name)
        except ModuleNotFoundError as error:
            assert str(error).startswith(f"{{package}}.{{name}} needs torch: pip install "), error
            print(name)
""")
    assert {"DataCollatorWithPadding", "tokenizer_pad", "DistributedTensorGatherer"} <= set(failed)
    assert not {"pad", "attention_mask", "Ragged", "show_config", "__version__"} & set(failed)


def test_other_missing_modules_are_not_explained():
    words("""
from quadrat.support.extras import needs
try:
    with needs("this"):
        import quadrat_has_no_such_module
except ModuleNotFoundError as error:
    assert str(error) == "No module named 'quadrat_has_no_such_module'", error
""")


def test_extras_have_what_they_are_said_to_have():
    """The rest comes with these: pyarrow with datasets, tokenizers with transformers."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = {
        name: {re.match("[a-z]+", text)[0] for text in texts}
        for name, texts in project["optional-dependencies"].items()
    }
    assert extras.keys() == EXTRAS.keys()
    for name, packages in extras.items():
        assert packages <= {*EXTRAS[name]} <= packages | {"pyarrow", "tokenizers"}


def test_works_where_torch_is_shut_out():
    shut_out = "import sys; sys.modules['torch'] = None"  # the usual way to test without a module
    words(f"""
{shut_out}; import quadrat
assert quadrat.pad([[1], []]).tolist() == [[1], [0]]
assert list(quadrat.TokenBudgetBatchSampler([5, 3, 8, 2, 6], 16, shuffle=False)) == [[2, 4], [0, 1, 3]]
assert quadrat.batching.plan_packs([5, 3, 8, 2, 6], 8).to_lists() == [[2], [4, 3], [0, 1]]
""")


@pytest.mark.parametrize("name", quadrat.__all__)
def test_every_name_resolves(name):
    value = getattr(quadrat, name)
    assert getattr(quadrat, name) is value
    assert value is getattr(importlib.import_module(HOMES[name]), name)
    assert value.__name__ == name
    assert value.__doc__


@pytest.mark.parametrize("package", PUBLIC, ids=lambda package: package.__name__)
def test_public_modules_list_what_they_have(package):
    assert dir(package) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is getattr(package, name)
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018
    with pytest.raises(ImportError):
        exec(f"from {package.__name__} import nonsense")


def test_each_name_has_one_place():
    assert len(EVERYWHERE) == sum(len(package.__all__) for package in PUBLIC)


def test_stubs_give_names_as_they_are():
    """`import x as x` is what makes a name public for type checkers."""
    for package in PUBLIC:
        stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
        names = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
        assert names
        assert all(alias.name == alias.asname for alias in names)


def test_names_of_modules_are_found_for_those_who_look_at_the_top():
    with pytest.raises(AttributeError, match=r"has no attribute 'plan_packs'; it is quadrat\.batching\.plan_packs$"):
        quadrat.plan_packs  # noqa: B018
    with pytest.raises(ImportError):
        exec("from quadrat import plan_packs")
