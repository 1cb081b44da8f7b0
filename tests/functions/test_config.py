"""quadrat.show_config() and the command line that prints it."""

import functools
import importlib.metadata
import platform

import pytest

import quadrat
from quadrat import _core, config
from quadrat.installed.tested import RANGES
from support.command import run


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    return functools.partial(run, folder=tmp_path)


def test_says_what_it_is_and_what_it_found():
    config = quadrat.show_config()
    assert all(type(one) is str and one for pair in config.items() for one in pair)
    assert config["quadrat"] == quadrat.__version__ == importlib.metadata.version("quadrat")
    assert platform.python_version() in config["python"]
    assert config["compiler"] == _core.compiler()
    assert config["compiler"].split()[0] in ("gcc", "clang", "msvc")
    assert config["SIMD level"] in ("x86-64", "x86-64-v3", "x86-64-v4", "portable")
    for name in ("numpy", "torch", "transformers"):
        assert config[name] == importlib.metadata.version(name)


def test_the_simd_level_is_one_this_processor_has():
    level = quadrat.show_config()["SIMD level"]
    try:
        with open("/proc/cpuinfo") as file:
            flags = next(set(line.split()) for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        pytest.skip("no /proc/cpuinfo with flags")
    if level != "portable":
        best = "x86-64-v4" if "avx512vl" in flags else "x86-64-v3" if "avx2" in flags else "x86-64"
        assert level == best


def test_says_what_is_not_installed(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    config = quadrat.show_config()
    assert [config[name] for name in ("numpy", "torch", "transformers")] == ["not installed"] * 3


def test_says_which_versions_are_untested(monkeypatch):
    installed = {"torch": "99.0.1", "numpy": "1.25.2", "transformers": "not installed"}
    monkeypatch.setattr(config, "version", lambda name: installed.get(name, "not installed"))
    oldest, newest = RANGES["torch"]
    assert quadrat.show_config()["untested"] == f"torch 99.0.1 (tested: {oldest} to {newest})"


def test_says_how_tensors_are_read():
    import torch

    has_exchange = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
    assert quadrat.show_config()["torch exchange"] == ("DLPack exchange API" if has_exchange else "data_ptr()")


def test_says_which_cuda_kernels_are_there():
    shown = quadrat.show_config()["CUDA"]
    try:
        from quadrat import _cuda
    except ImportError:
        assert shown == "not built"
    else:
        assert shown == _cuda.description()


def test_info_prints_the_configuration(command):
    done = command("info")
    assert (done.returncode, done.stderr) == (0, "")
    config = quadrat.show_config()
    config["torch exchange"] = "torch not loaded yet"  # the command loads nothing to find out
    lines = done.stdout.splitlines()
    assert len(lines) == len(config)
    places = set()
    for line, (name, value) in zip(lines, config.items(), strict=True):
        assert line.startswith(name)
        assert line[len(name) :].strip() == value
        places.add(len(line) - len(value))
    assert len(places) == 1, "the values stand in one column"


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        ((), 0, "info"),
        (("nonsense",), 2, "info"),
        (("info", "more"), 2, "unrecognized arguments: more"),
        (("--help",), 0, "info"),
    ],
)
def test_other_commands_are_explained(command, arguments, status, named):
    done = command(*arguments)
    assert done.returncode == status
    assert "usage: python -m quadrat" in done.stdout + done.stderr
    assert named in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
