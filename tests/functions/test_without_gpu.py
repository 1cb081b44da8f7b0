"""What is said where a GPU is asked for and there are no CUDA kernels, none that load, or no device."""

import contextlib
import sys
import types

import pytest

import quadrat
from quadrat.support import gpu
from support import samples


class Kernels(types.ModuleType):
    """A stand-in for `quadrat._cuda` as it is built with CUDA, on a machine without a device."""

    def device_count(self):
        """How many devices there are."""
        return 0


class Unloadable:
    """Finds a `quadrat._cuda` that was built and does not load."""

    def find_spec(self, name, path=None, target=None):
        """As a finder of `sys.meta_path`."""
        if name == "quadrat._cuda":
            raise ImportError("libcuda.so.1: cannot open shared object file")


@pytest.fixture(params=["not built", "not loadable", "no device"])
def situation(request, monkeypatch):
    monkeypatch.delitem(sys.modules, "quadrat._cuda", raising=False)
    monkeypatch.delattr(quadrat, "_cuda", raising=False)
    if request.param == "not built":
        monkeypatch.setitem(sys.modules, "quadrat._cuda", None)
    elif request.param == "not loadable":
        monkeypatch.setattr(sys, "meta_path", [Unloadable(), *sys.meta_path])
    else:
        monkeypatch.setitem(sys.modules, "quadrat._cuda", Kernels("quadrat._cuda"))
    for cached in (gpu._kernels, gpu.available):
        cached.cache_clear()
    yield request.param
    for cached in (gpu._kernels, gpu.available):
        cached.cache_clear()


SAID = {
    "not built": "quadrat was built without CUDA kernels",
    "not loadable": "quadrat's CUDA kernels do not load (libcuda.so.1: cannot open shared object file)",
    "no device": "quadrat's CUDA kernels find no CUDA device",
}


def test_deferred_batches_say_why_they_are_padded_on_the_cpu(situation, caplog):
    deferred = samples.make(quadrat, "DataCollatorWithPadding", deferred=True)(samples.batch("DataCollatorWithPadding"))
    with caplog.at_level("WARNING", logger="quadrat"):
        for _ in range(2):  # torch says in its own words that there is no device; or there is one, and copies
            with contextlib.suppress(AssertionError, RuntimeError):
                deferred.to("cuda")
    assert caplog.messages == [f"{SAID[situation]}: deferred batches are padded on the CPU and then copied"]


def test_kernels_say_why_there_are_none(situation):
    if situation == "no device":
        assert gpu._kernels().device_count() == 0
        return
    with pytest.raises(RuntimeError) as caught:
        gpu._kernels()
    assert str(caught.value) == f"{SAID[situation]}: move the tensors to the CPU"


def test_the_configuration_says_so(situation, monkeypatch):
    if situation == "no device":
        monkeypatch.setattr(sys.modules["quadrat._cuda"], "description", lambda: "no device", raising=False)
    shown = quadrat.show_config()["CUDA"]
    assert shown.startswith({"not loadable": "does not load: libcuda.so.1"}.get(situation, situation))
