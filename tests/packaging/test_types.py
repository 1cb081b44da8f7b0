"""What a type checker says of code that uses quadrat: mypy, on a file that is right and on one that is not.

torch is a stub here and transformers all but skipped: reading them would take minutes.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="checks the types")

SETTINGS = """
[mypy]
strict = true
follow_imports = skip
[mypy-quadrat.*,numpy.*,torch,transformers.data.data_collator]
follow_imports = silent
"""
TORCH = """
from typing import Any
class Tensor: ...
def __getattr__(name: str) -> Any: ...
"""
HEAD = """
from typing import Any
import numpy as np, torch
from numpy.typing import NDArray
from transformers.data import data_collator as theirs
import quadrat
tokenizer: Any
lists: list[list[int]]
tensors: list[torch.Tensor]
arrays: list[NDArray[np.int64]]
"""
ARRAY, TENSOR, BATCH = "ndarray[tuple[Any, ...], dtype[Any]]", "Tensor", "dict[str, Any]"
# Expressions, and their types without the names of modules.
TYPES = {
    "quadrat.DataCollatorWithPadding(tokenizer, pad_values={'labels': -100}, deferred=True)([])": BATCH,
    "quadrat.DataCollatorForLanguageModeling(tokenizer, mlm=False, rng='philox')([])": BATCH,
    "quadrat.DataCollatorForLanguageModeling(tokenizer).torch_call([])": BATCH,
    "quadrat.DataCollatorForWholeWordMask(tokenizer, mlm_probability=0.2, deferred=True)([])": BATCH,
    "quadrat.DataCollatorForPermutationLanguageModeling(tokenizer, max_span_length=3)([])": BATCH,
    "quadrat.DataCollatorWithFlattening('np', separator_id=0, kwargs_for='mask')([])": BATCH,
    "quadrat.default_data_collator([])": BATCH,
    "quadrat.from_transformers(theirs.DataCollatorForSeq2Seq(tokenizer))": "DataCollatorForSeq2Seq",
    "quadrat.pad(lists)": ARRAY,
    "quadrat.pad(arrays)": ARRAY,
    "quadrat.pad(tensors)": TENSOR,
    "quadrat.pad(lists, return_tensors='pt')": TENSOR,
    "quadrat.pad(quadrat.Ragged.from_rows(lists))": ARRAY,
    "quadrat.attention_mask([1, 2])": ARRAY,
    "quadrat.attention_mask([1, 2], return_tensors='pt')": TENSOR,
    "quadrat.unpad(tensors[0], lengths=[1])": "Ragged[Tensor]",
    "quadrat.flatten(lists, kwargs_for='mask')": BATCH,
    "quadrat.flatten(lists).max_length": "int",
    "quadrat.flatten(lists, align_to=8).padding_mask": "Any",
    "quadrat.evaluation.concat_padded(arrays)": "ndarray[tuple[Any, ...], dtype[signedinteger[_64Bit]]]",
    "quadrat.Ragged(arrays[0], arrays[0])": f"Ragged[{ARRAY}]",
    "quadrat.Ragged(tensors[0], tensors[0]).lengths": TENSOR,
    "quadrat.Ragged.from_rows(lists).to('cpu')[0]": TENSOR,
    "quadrat.Ragged.from_rows(lists)[1:].total": "int",
    "quadrat.deferred.DeferredBatch({}).to('cuda')": BATCH,
}
# And what is said of code that is wrong.
WRONG = {
    "quadrat.DataCollatorWithPadding(tokenizer, pading=True)": 'Unexpected keyword argument "pading"',
    "quadrat.DataCollatorWithFlattening(seperator_id=0)": 'Unexpected keyword argument "seperator_id"',
    "quadrat.DataCollatorForWholeWordMask(tokenizer, mlm_prob=0.2)": 'Unexpected keyword argument "mlm_prob"',
    "quadrat.DataCollatorForPermutationLanguageModeling(tokenizer, span=3)": 'Unexpected keyword argument "span"',
    "quadrat.DataCollatorForLanguageModeling(tokenizer, mlm='no')": 'Argument "mlm" to',
    "quadrat.DataCollatorWithFlattening(kwargs_for='nobody')": 'Argument "kwargs_for" to',
    "quadrat.pad(lists, sides='left')": 'Unexpected keyword argument "sides"',
    "quadrat.Ragged.from_rows(lists).paded()": f'"Ragged[{ARRAY}]" has no attribute "paded"',
    "quadrat.padd": 'Module has no attribute "padd"',
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says of each line of a file with all expressions, in their order."""
    folder = tmp_path_factory.mktemp("typed")
    (folder / "stubs" / "torch").mkdir(parents=True)
    (folder / "stubs" / "torch" / "__init__.pyi").write_text(TORCH)
    (folder / "mypy.ini").write_text(SETTINGS)
    used = folder / "used.py"
    used.write_text(
        HEAD
        + "".join(f"reveal_type({expression})\n" for expression in TYPES)
        + "".join(f"{expression}\n" for expression in WRONG)
    )
    package = Path(__file__).parents[2] / "python"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "used.py"],
        capture_output=True, text=True, cwd=folder, check=False,
        env={"MYPYPATH": f"{folder / 'stubs'}:{package}", "PATH": ""},
    )  # fmt: skip
    assert done.stderr == ""
    lines = [""] * used.read_text().count("\n")
    for number, text in re.findall(r"^used\.py:(\d+): (.*)", done.stdout, re.MULTILINE):
        lines[int(number) - 1] += f"{text}\n"
    return lines[HEAD.count("\n") :]


@pytest.mark.slow
def test_results_have_types(said: list[str]) -> None:
    for expression, line in zip(TYPES, said, strict=False):
        kind = re.search(r'Revealed type is "(.*)"', line)
        assert kind is not None, f"{expression}: {line}"
        assert re.sub(r"\b[a-z_0-9]+\.(?=\w)", "", kind[1]) == TYPES[expression], expression
        assert "error" not in line, f"{expression}: {line}"


def test_mistakes_are_found(said: list[str]) -> None:
    for expression, line in zip(WRONG, said[len(TYPES) :], strict=True):
        assert WRONG[expression] in line, f"{expression}: {line}"
