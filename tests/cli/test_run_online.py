"""`quadrat run` of TRL's online trainers: their padding is counted, the options act, and the weights stay."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from support.command import reported

pytest.importorskip("trl", reason="TRL, whose trainers are run, is not installed")
SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from support.online import trainer_of, weights
trainer = trainer_of("GRPO", "out", beta=0.1)
trainer.train()
torch.save(weights(trainer), "weights.pt")
"""


def ran(folder: Path, *options: str) -> tuple[Any, dict[str, int], str]:
    """The weights after a run, the counts of its passes, and what was said."""
    done, report = reported(folder, SCRIPT, options=options)
    counts = {name.split()[-1]: number for name, number in report["elsewhere"].items()}
    return torch.load(folder / "weights.pt"), counts, done.stderr


def test_the_report_counts_and_options_act(tmp_path: Path) -> None:
    expected, before, said = ran(tmp_path)
    assert before["sorted"] < before["trimmed"] < before["computed"]
    found = re.search(r"passes of online trainers: ([\d.]+)% of ([\d,]+) tokens computed were padding; (.*)\n", said)
    assert found is not None
    assert int(found[2].replace(",", "")) == before["computed"]
    assert float(found[1]) == pytest.approx(100 - 100 * before["tokens"] / before["computed"], abs=0.06)
    assert "--trim would compute" in found[3]
    assert "--max-tokens auto would compute" in found[3]
    for option, estimated in (("--trim", "trimmed"), ("--max-tokens=auto", "sorted")):
        got, counts, said = ran(tmp_path, option)
        assert max(float((got[name] - expected[name]).abs().max()) for name in got) < 1e-5
        assert "Passes of Qwen2ForCausalLM are cut at both sides" in said
        assert counts["tokens"] >= before["tokens"]
        assert counts["computed"] == pytest.approx(before[estimated], rel=0.2)  # with the passes that ask a model
        assert f"{option.partition('=')[0]} would compute" not in said


@pytest.mark.slow
def test_a_number_is_refused(tmp_path: Path) -> None:
    _, counts, said = ran(tmp_path, "--max-tokens", "99")
    assert "batches are as before: max_tokens: GRPOTrainer generates its rows" in said
    assert counts["computed"] > counts["trimmed"]
