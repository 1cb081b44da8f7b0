"""The examples run, briefly, and say what they promise."""

import json
import re
import runpy
import secrets
from pathlib import Path

import pytest

from support.isolated import python

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*arguments: object) -> str:
    return python(*arguments, COLUMNS="160", NO_COLOR="1", RAY_AUTH_TOKEN=secrets.token_hex(32))


FEW = ("--steps", 3, "--batch-size", 4, "--per-package", 20)
# Examples, their arguments and what they say.
RUNS = [
    *(("arrow_dataset.py", ("--per-package", 20, "--workers", n), "batches are identical") for n in (0, 2)),
    (
        "map_with_collator.py",
        ("--per-package", 20, "--length", 64),
        "The columns are identical, and the second time nothing was computed.",
    ),
    ("embeddings.py", ("--per-package", 20), "The embeddings are the same, to rounding."),
    ("padding_free.py", FEW, "Equal losses at all 3 steps"),
    ("vision_language.py", ("--rows", 8, "--steps", 2), "Equal losses at all 2 steps"),
    ("threads.py", ("--batches", 12, "--rows", 4), "All batches are identical.\n"),
    ("threads.py", ("--batches", 12, "--rows", 4, "--torchdata"), "All batches are identical.\n"),
]


@pytest.mark.parametrize(("example", "arguments", "promise"), RUNS)
def test_example(example, arguments, promise):
    if "--torchdata" in arguments:
        pytest.importorskip("torchdata", reason="torchdata, whose nodes the loader is made of, is not installed")
    strict = ("-W", "error") if arguments is FEW else ()
    assert promise in run(*strict, EXAMPLES / example, *arguments)


def assert_trained_three_times(output, steps, picture):
    assert f"losses at all {steps} steps are equal to 1e-05" in output
    assert output.count("An epoch takes ") == 2
    assert re.search(rf"^ *steps with the same loss +{steps} of {steps} *$", output, re.MULTILINE)
    shares = re.search(r"of these, padding((?: +\d+\.\d%){3})", output)[1]
    _, removed, budget = (float(share) for share in shares.split("%")[:3])
    assert removed == 0 <= budget
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_classify_packages(tmp_path):
    options = ("--per-package", 20, "--epochs", 1, "--picture", tmp_path / "folder/demo.png")
    assert_trained_three_times(run(EXAMPLES / "classify_packages.py", *options), 5, options[-1])


def test_classify_a_file_of_ones_own(tmp_path):
    lines = [
        {"text": " ".join(f"{word}{n * k % 17}" for k in range(9)), "label": word}
        for n in range(60)
        for word in ("alpha", "beta")
    ]
    path, picture = tmp_path / "texts.jsonl", tmp_path / "demo.png"
    path.write_text("\n".join(map(json.dumps, lines)))
    options = ("--text", path, "--epochs", 1, "--picture", picture)
    assert_trained_three_times(run(EXAMPLES / "classify_packages.py", *options), 4, picture)


def test_sentence_pairs():
    output = run(EXAMPLES / "sentence_pairs.py", "--per-package", 60, "--steps", 4)
    assert "The batch is identical to that of transformers' collator." in output
    losses = re.search(r"loss of each step: (.*)", output)[1].split(", ")
    assert float(losses[-1]) < float(losses[0])
    lengths = json.loads(re.search(r"lengths of eight: (.*)", output)[1])
    assert f"their batch: {{'input_ids': (8, {max(lengths)}), 'token_type_ids': (8, {max(lengths)})" in output
    assert re.search(r"on held-out pairs: accuracy \d+\.\d%, F1 [01]\.\d{3}\n", output)


def test_loss_per_example():
    output = run(EXAMPLES / "loss_per_example.py", "--per-package", 33, "--steps", 4, "--top", 5)
    assert "They differ by less than 0.0001." in output
    losses = [float(loss) for loss in re.findall(r"^\d+ .* (\d+\.\d{4})$", output, re.MULTILINE)]
    assert len(losses) == 10
    assert losses == sorted(losses, reverse=True)
    assert max(map(len, output.splitlines())) <= 120


def test_loss_per_token():
    output = run(EXAMPLES / "loss_per_token.py", "--statements", 300, "--steps", 5)
    assert re.search(r"^(\d+) tokens in the table, \1 labels in the dataset", output, re.MULTILINE)
    assert "Nothing was lost: Trainer's loss, " in output


def test_resume_mlm():
    output = run(EXAMPLES / "resume_mlm.py", "--per-package", 5)
    steps = int(re.search(r'rng="philox", the masks and losses of all (\d+) steps are identical', output)[1])
    same = dict(re.findall(r"^(stopped and resumed|with two workers) +(\d+ +\d+)$", output, re.MULTILINE))
    assert [int(counts.split()[0]) for counts in same.values()] == [steps, steps]
    assert all(int(counts.split()[1]) < steps for counts in same.values()), "a generator's masks are others"


def test_token_budget():
    output = run("-W", "error", EXAMPLES / "token_budget.py", "--per-package", 10, "--max-length", 128)
    total = re.search(r"Each way has seen the same ([\d,]+) tokens, ([\d,]+) of them masked\.", output)[1]
    assert f"documents, {total} tokens" in output
    computed = {}
    for way in ("random", "token budget", "packed"):
        _, computed[way], attention, *_ = re.search(rf"^ *{way}((?: +[\d.,]+%?){{7}}) *$", output, re.MULTILINE)[
            1
        ].split()
        assert float(attention) >= float(computed[way])
    assert float(computed["random"]) > float(computed["token budget"]) > float(computed["packed"]) == 1
    losses = re.findall(r"^ *[\d,]+ - [\d,]+((?: +\d+\.\d+)+) *$", output, re.MULTILINE)
    assert len(losses) > 1


def test_torchrun_mlm():
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    output = run(*torchrun, EXAMPLES / "torchrun_mlm.py", "--reference", "--steps", 4, "--per-package", 20)
    assert "2 processes" in output
    assert "Identical losses at all 4 steps of each process." in output


def test_no_example_is_left_out():
    tests = Path(__file__).read_text()
    examples = {path.name for path in EXAMPLES.glob("*.py")} - {
        "corpus.py",
        "in_turn.py",
        "outcomes.py",
    }  # which others import
    assert [name for name in examples if name not in tests] == []


def test_texts_of_ones_own(tmp_path):
    """Labels and texts are what a file says, "null" included; an incomplete line is named."""
    corpus = runpy.run_path(str(EXAMPLES / "corpus.py"))
    path = tmp_path / "texts.txt"
    path.write_text('NA\tsome "text\n\nb\tnull\nNA\t1\n')
    read = corpus["labelled"](path)
    assert read == corpus["Corpus"](['some "text', "null", "1"], [0, 1, 0], ["NA", "b"])
    lines = tmp_path / "texts.jsonl"
    lines.write_text('{"text": "2020-01-01", "label": 10}\n{"text": "None", "label": 2}\n')
    assert corpus["labelled"](lines) == corpus["Corpus"](["2020-01-01", "None"], [0, 1], ["10", "2"])
    for text in ("a\tb\n\nno label\n", "a\tb\n\nlabel\t \n"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"texts\.txt, entry 3: expected a label and a text"):
            corpus["labelled"](path)
    path.write_text("\n\n")
    with pytest.raises(ValueError, match="expected a label and a text"):
        corpus["labelled"](path)
