"""The configuration of this build, and of the installed libraries; the versions that quadrat was tested with."""

import json
import platform
import sys
from pathlib import Path

from quadrat import _core
from quadrat.support.extras import is_within, version
from quadrat.support.gpu import load_cuda_kernels

# As `make matrix ARGS=--record` writes it; see docs/compatibility.md.
_TESTED = json.loads(Path(__file__).with_name("tested.json").read_text(encoding="utf-8"))
# Package -> oldest and newest version.
RANGES: dict[str, tuple[str, str]] = {name: (oldest, newest) for name, (oldest, newest) in _TESTED["ranges"].items()}
# Code of transformers -> its fingerprints in the tested versions, see quadrat.installed.imitated.
FINGERPRINTS: dict[str, list[str]] = _TESTED["fingerprints"]


def show_config() -> dict[str, str]:
    """Return the version, compiler, SIMD level and CUDA architectures of this build, and the installed libraries.

    Returns:
        A dict of strings by name; `python -m quadrat info` prints it. Imports neither torch nor transformers.

    Examples:
        >>> import quadrat
        >>> from quadrat.config import show_config
        >>> show_config()["quadrat"] == quadrat.__version__
        True
    """
    return {
        "quadrat": _core.__version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "compiler": _core.compiler(),
        "SIMD level": _core.simd_level(),
        "CUDA": _cuda_build(),
        **{name: version(name) for name in ("numpy", "torch", "transformers", "tokenizers", "datasets", "trl")},
        "versions": _versions(),
        "torch exchange": _exchange(),
    }


def _versions() -> str:
    installed = {name: version(name) for name in RANGES}
    outside = [
        f"{name} {installed[name]} (tested: {' to '.join(tested)})"
        for name, tested in RANGES.items()
        if installed[name] != "not installed" and not is_within(tested, installed[name])
    ]
    return f"not tested with {', '.join(outside)}" if outside else "all versions tested"


def _cuda_build() -> str:
    try:
        return str(load_cuda_kernels().description())
    except ModuleNotFoundError:
        return "not built"
    except ImportError as error:
        return f"does not load: {error}"


def _exchange() -> str:
    if sys.modules.get("torch") is None:
        return "torch not loaded yet"
    from quadrat.support.memory import interop

    return "DLPack exchange API" if interop().has_exchange else "data_ptr()"
