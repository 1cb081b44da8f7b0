"""`quadrat.patch`: what each library's own patch replaces, all at once; and all of it is undone."""

import concurrent.futures
import importlib.util
import sys
import warnings

import pytest

import quadrat
from quadrat.integration.patch_datasets import DATASETS
from support.patched import picture

HAS_TRL = importlib.util.find_spec("trl") is not None
NAMES = ("transformers", "datasets", "tokenizers", *["trl"] * HAS_TRL)
ALONE = {
    "transformers": lambda: quadrat.patch_transformers(datasets=False, tokenizers=False),
    "datasets": quadrat.data.patch_datasets,
    "tokenizers": quadrat.tokenizers.patch_tokenizers,
}
if HAS_TRL:
    ALONE["trl"] = quadrat.trl.patch_trl


@pytest.fixture(autouse=True)
def before():
    """What the libraries have without a patch, all of them imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what TRL's dependencies say when they are imported
        quadrat.patch().undo()
    unpatched = picture()
    yield unpatched
    assert picture() == unpatched


def replaced(before):
    return {place for place, value in picture().items() if place[0] != "home" and value is not before.get(place)}


def replaced_by(names, before):
    places = set()
    for name in names:
        with ALONE[name]():
            places |= replaced(before)
    return places


def test_replaces_what_the_patches_of_the_libraries_do(before):
    with quadrat.patch():
        assert replaced(before) == replaced_by(NAMES, before)


@pytest.mark.parametrize("name", NAMES)
def test_each_library_is_an_option(name, before):
    others = [other for other in NAMES if other != name]
    alone, rest = replaced_by([name], before), replaced_by(others, before)
    assert alone
    with quadrat.patch(**{other: other == name for other in NAMES}):
        assert replaced(before) == alone
    with quadrat.patch(**{name: False}):
        assert replaced(before) == rest


@pytest.mark.parametrize("missing", ["transformers", "datasets", "trl"])
def test_what_is_not_installed_is_left_out_or_asked_for(missing, before, monkeypatch):
    named = {"transformers": ["transformers", "tokenizers"]}.get(missing, [missing])
    rest = replaced_by([name for name in NAMES if name not in named], before)
    monkeypatch.setitem(sys.modules, missing, None)
    with quadrat.patch():
        monkeypatch.undo()  # which hides the module from `picture` as well
        assert replaced(before) == rest
    monkeypatch.setitem(sys.modules, missing, None)
    install = "trl" if missing == "trl" else rf'"quadrat\[{missing}\]"'
    for name in named:
        message = rf"^quadrat\.patch\({name}=True\) needs {missing}: pip install {install}$"
        with pytest.raises(ModuleNotFoundError, match=message) as caught:
            quadrat.patch(**{name: True})
        assert caught.value.name == missing
        quadrat.patch(**{name: False}).undo()
    monkeypatch.undo()


def test_an_error_in_one_leaves_nothing_patched(before, monkeypatch):
    def fail():
        assert picture() != before
        raise ImportError("this version has no such name")

    monkeypatch.setattr(DATASETS, "_find", fail)
    with pytest.raises(ImportError, match="no such name"):
        quadrat.patch()
    assert picture() == before


def test_threads(before):
    def patch(number):
        with quadrat.patch(trl=number % 2 == 0 and HAS_TRL):
            assert picture() != before

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(patch, range(12)))
