"""Facts on the machine and the console of the benchmarks; how they check and time is `quadrat.cli.measure`."""

import sys
from typing import Any

import cpuinfo  # type: ignore[import-untyped]
import numpy as np
from rich.console import Console

from quadrat.cli.measure import (
    Collate,
    DifferenceError,
    Feature,
    calls_of,
    check_collators,
    check_same,
    quiet,
    rounded,
    sample,
    seed,
    timed,
    versions,
)

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


def alone(collate: Collate, features: list[Feature], *, seconds: float, calls: int = 1, at_least: int = 5) -> float:
    """Median nanoseconds a call, of samples for about `seconds` after one to warm up."""
    return float(np.median(timed([collate], features, seconds=seconds, calls=calls, at_least=at_least)))


def compare(reference: Collate, quadrat: Collate, features: list[Feature], *, seconds: float) -> dict[str, Any]:
    """Check that both collators return the same batch, then time them in turn for about `seconds`, then alone.

    Returns nanoseconds a call, and ratios: of `pairs` alternating samples, and of each collator alone.
    """
    check_collators(reference, quadrat, features)
    calls = calls_of(reference, features)
    times = timed((reference, quadrat), features, seconds=seconds, calls=calls, at_least=20)
    both = ("reference", times[:, 0]), ("quadrat", times[:, 1])
    medians = {f"{name}_median_ns": float(np.median(own)) for name, own in both}
    ratios = times[:, 0] / times[:, 1]
    reference_alone, quadrat_alone = (
        alone(collate, features, seconds=seconds / 4, calls=calls) for collate in (reference, quadrat)
    )
    return {
        "pairs": len(times),
        "calls_per_sample": calls,
        **medians,
        **{f"{name}_quartiles_ns": np.percentile(own, (25, 75)).tolist() for name, own in both},
        **{f"{name}_min_ns": float(own.min()) for name, own in both},
        "ratio_of_medians": medians["reference_median_ns"] / medians["quadrat_median_ns"],
        "median_of_ratios": float(np.median(ratios)),
        "ratio_quartiles": np.percentile(ratios, (25, 75)).tolist(),
        "reference_alone_ns": reference_alone,
        "quadrat_alone_ns": quadrat_alone,
        "ratio_alone": reference_alone / quadrat_alone,
    }


def terminal() -> Console:
    """A console whose tables are not squeezed when the output goes into a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else 110)
