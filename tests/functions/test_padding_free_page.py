"""docs/padding-free.md: its snippets run, one after the other, and print what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import torch

import quadrat

PAGE = Path(__file__).parents[2] / "docs" / "padding-free.md"


def test_the_snippets_run(capsys):
    names: dict[str, object] = {}
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for number, code in enumerate(snippets):
        exec(compile(code, f"snippet {number}", "exec"), names)
    printed = capsys.readouterr().out
    for comment in re.findall(r"print\(.*\)  # (.*)", PAGE.read_text()):
        assert comment in printed or comment == "True where there is no token", comment
    assert torch.equal(names["back"], names["hidden"])
    assert torch.equal(names["padded"][0, :2], names["tokens"][:2])
    names["back"].sum().backward()
    assert names["batch"]["padding_mask"].tolist()[:4] == [False, False, False, True]


def test_its_table_of_names():
    for name in ("transformers", "varlen_attn", "megatron", "mask"):
        row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f'| `"{name}"` '))
        given = set(quadrat.flatten([[1, 2], [3]], names=name)) - {"values", "position_ids", "seq_idx"}
        assert given == set(re.findall(r"`(\w+)`", row.rpartition("|")[0].rpartition("|")[2]))
