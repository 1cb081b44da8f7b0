"""What bench_cuda.py measured, as Markdown and as a picture, and the GPU that it ran on."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch

import quadrat
from pictures import BAR, SOFT, save, tidy

TIMES = "\N{MULTIPLICATION SIGN}"


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def markdown(results: dict[str, Any]) -> str:
    lines = []
    if rows := results.get("bandwidth"):
        lines += ["| kernel | time | GB/s | copy, GB/s | of a copy |", "| --- | --: | --: | --: | --: |"]
        lines += [
            f"| {row['case']} | {row['microseconds']:,.0f} µs | {row['gigabytes_per_second']:,.0f} | "
            f"{row['copy_gigabytes_per_second']:,.0f} | {row['share_of_copy']:.0%} |"
            for row in rows
        ]
    if rows := results.get("compare"):
        lines += [
            "",
            "| case | beside | quadrat | other | ratio | in a CUDA graph |",
            "| --- | --- | --: | --: | --: | --: |",
        ]
        for row in rows:
            graph = "" if "graph_ratio" not in row else (
                f"{row['graph_microseconds']:,.1f} / {row['other_graph_microseconds']:,.1f} µs, "
                f"{row['graph_ratio']:.1f}{TIMES}"
            )  # fmt: skip
            lines.append(
                f"| {row['case']} | {row['other']} | {row['microseconds']:,.1f} µs | "
                f"{row['other_microseconds']:,.1f} µs | {row['ratio']:.1f}{TIMES} | {graph} |"
            )
    for row in results.get("masked", ()):
        lines += ["", f"Masking with padding takes {row['ratio']:.2f} times what padding alone does ({row['case']})."]
    facts = results["machine"]
    return "\n".join([*lines, "", f"Medians; {facts['gpu']}, torch {facts['torch']}, {facts['cuda']}."]) + "\n"


def plot(rows: list[dict[str, Any]], facts: dict[str, Any], path: Path) -> None:
    """Horizontal bars: the share of a copy's bandwidth."""
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.36 * len(rows)), layout="constrained")
    shares = [row["share_of_copy"] * 100 for row in rows]
    axes.barh(range(len(rows)), shares, height=0.66, color=BAR)
    for position, (row, share) in enumerate(zip(rows, shares, strict=True)):
        text = f"{share:.0f} %   {row['gigabytes_per_second'] / 1e3:.2f} TB/s"
        axes.annotate(text, (0, position), xytext=(6, -0.5), textcoords="offset points", va="center", color="white",
                      weight="bold", fontsize=9)  # fmt: skip
    axes.set_yticks(range(len(rows)), [row["case"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 105)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.tick_params(axis="x", colors=SOFT, labelsize=9)
    tidy(axes, "Bandwidth, as a share of a copy within the device")
    save(figure, path, f"{facts['gpu']}, torch {facts['torch']}")


def machine() -> dict[str, Any]:
    from quadrat import _cuda  # not in every build

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "torch": torch.__version__,
        "cuda": _cuda.description(),
        "quadrat": quadrat.__version__,
    }
