"""Facts on the machine and the console of the benchmarks; how they check and time is `quadrat.cli.measure`."""

import sys
from typing import Any

import cpuinfo  # type: ignore[import-untyped]
from rich.console import Console

from quadrat.cli.measure import DifferenceError, alone, check_same, compare, quiet, rounded, sample, seed, versions

__all__ = [
    "DifferenceError",
    "alone",
    "check_same",
    "compare",
    "machine",
    "quiet",
    "rounded",
    "sample",
    "seed",
    "terminal",
]


def machine() -> dict[str, Any]:
    """The processor and the versions that a result depends on."""
    cpu = cpuinfo.get_cpu_info()
    return {
        "cpu": cpu.get("brand_raw", "unknown"),
        # Virtual machines often cut the model off the name; family and model still tell the generation.
        "cpu_family": cpu.get("family"),
        "cpu_model": cpu.get("model"),
        **versions(),
    }


def terminal() -> Console:
    """A console whose tables are not squeezed when the output goes into a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else 110)
