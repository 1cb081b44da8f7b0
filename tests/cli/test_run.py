"""`quadrat run`: the script behaves as under Python, quadrat makes its batches, and the report is right."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from support.command import PYTHON, RUN, ran, ran_alike, reported

TRAIN = """
    import random, sys
    from transformers import (BertConfig, BertForSequenceClassification, DataCollatorWithPadding,
        PreTrainedTokenizerFast, Trainer, TrainingArguments, set_seed)
    from datasets import Dataset
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({"[PAD]": 0, "a": 1}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    draw = random.Random(0)
    rows = [{"input_ids": [1] * min(90, int(draw.lognormvariate(2.5, 1)) + 1), "labels": i % 2} for i in range(96)]
    set_seed(0)
    sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    model = BertForSequenceClassification(BertConfig(vocab_size=9, **sizes))
    args = TrainingArguments("out", per_device_train_batch_size=8, num_train_epochs=1, report_to="none",
        disable_tqdm=True, save_strategy="no", use_cpu=True, logging_strategy="no",
        dataloader_num_workers=int(sys.argv[1]))

    class Printing(Trainer):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            print("loss", (loss[0] if isinstance(loss, tuple) else loss).item().hex(), flush=True)
            return loss

    data = Dataset.from_list(rows)
    Printing(model, args, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer)).train()
"""
# Of one of several ranks: a process that ends while a model holds the threads of its process group may abort.
LEAVE = """
    import gc, torch
    trainer = None
    gc.collect()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path):
    """Writes a script into an empty folder."""

    def write(text: str, name: str = "script.py") -> Path:
        (tmp_path / name).write_text(dedent(text))
        return tmp_path

    return write


def losses(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("loss")]


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("quadrat-run-*")]


def test_modules_and_code(script):
    folder = script("import sys\nprint(sys.argv[1:], __name__, sys.path[0])", "one.py")
    for arguments in (["-m", "one", "-m", "--x"], ["-c", "import sys; print(sys.argv)", "-m", "a"], ["missing.py"]):
        ran_alike(folder, *arguments)


def test_a_sitecustomize_of_the_users_runs(script):
    folder = script("print('mine')", "sitecustomize.py")
    script("import sys\nprint(sys.modules['sitecustomize'].__file__)")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([*RUN, "script.py"], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["mine", "mine", str(folder / "sitecustomize.py")]  # once in the first Python


@pytest.mark.parametrize("arguments", [[], ["-m"], ["--quiet"], ["--max-tokens", "abc", "x.py"]])
def test_wrong_use(tmp_path, arguments):
    done = ran(tmp_path, RUN, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(("quadrat run:", "usage:"))
    assert ("--max-tokens: expected a whole number, got 'abc'; or auto" in done.stderr) == ("abc" in arguments)
    assert not left_over(tmp_path)


@pytest.mark.slow
def test_processes_of_a_pool(script):
    folder = script("""
        import multiprocessing
        def double(x):
            return x * 2, __name__
        if __name__ == "__main__":
            for method in ("spawn", "fork", "forkserver"):
                with multiprocessing.get_context(method).Pool(2) as pool:
                    print(pool.map(double, [1, 2]))
    """)
    ran_alike(folder, "script.py")


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_losses_of_a_trainer(script, workers):
    folder = script(TRAIN)
    expected, done = (ran(folder, command, "script.py", workers) for command in (PYTHON, RUN))
    assert losses(expected.stdout) == losses(done.stdout)
    assert len(losses(done.stdout)) == 12
    assert "12 batches: 12 compiled, 0 fell back" in done.stderr
    assert ("from 2 worker processes" in done.stderr) == (workers == "2")
    assert "tokens in training, of which 66.6% were padding; --remove-padding leaves them out\n" in done.stderr
    assert not left_over(folder)


@pytest.mark.slow
def test_a_token_budget(tmp_path):
    done, report = reported(tmp_path, TRAIN, "2", options=["--max-tokens", "auto"])
    assert report["rows"] == 96
    assert report["compiled"] == len(losses(done.stdout)) == 12
    assert report["padding"] < 0.15
    assert "12 steps an epoch, as before" in done.stderr
    assert "quadrat run" not in ran(tmp_path, [*RUN, "--quiet", "--max-tokens", "auto"], "script.py", "0").stderr


@pytest.mark.slow
def test_an_error_in_training_has_the_frames_of_without(script):
    """Also where quadrat makes the batches; it warns of a model that would mix packed rows before."""
    text = TRAIN.replace("loss = super()", "raise ValueError('mine'); loss = super()")
    text = text.replace("DataCollatorWithPadding", "DataCollatorWithFlattening").replace(', "labels": i % 2', "")
    text = text.replace("Flattening(tokenizer)", "Flattening()").replace("hidden_size=8", "hidden_size=64")
    folder = script(text)
    expected, done = (ran(folder, command, "script.py", "0") for command in (PYTHON, [*RUN, "--max-tokens", "400"]))
    frames = [[line for line in run.stderr.splitlines() if line.startswith("  File ")] for run in (expected, done)]
    assert frames[0] == frames[1]
    assert len(frames[0]) > 4
    assert "BertModel does not keep rows apart" in done.stderr
    assert done.returncode == 1


@pytest.mark.slow
def test_what_falls_back_and_what_cannot_be_batched(script, tmp_path):
    mixed = """
        from transformers import DefaultDataCollator
        collator = DefaultDataCollator()
        for _ in range(3):
            collator([{"a": [1, 0.5]}, {"a": [2, 0.5]}])
    """
    done, report = reported(tmp_path, mixed)
    assert (report["compiled"], report["fell_back"]) == (0, 3)
    assert "  3 times DefaultDataCollator: fell back to transformers: column 'a'" in done.stderr
    assert "give all rows of the column one element type" in done.stderr.partition("3 times DefaultDataCollator")[2]
    text = TRAIN.replace("data = Dataset.from_list(rows)", "data = Dataset.from_list(rows).to_iterable_dataset()")
    text = text.replace("num_train_epochs=1", "max_steps=4")
    done = ran(script(text), [*RUN, "--max-tokens", "512"], "script.py", "0")
    assert "batches are as before: IterableDataset cannot be indexed by row" in done.stderr
    assert len(losses(done.stdout)) == 4


@pytest.mark.slow
def test_packed_rows_count_once(script):
    """Those of a mask that numbers them, and those that a collator reads one by one, as one has no tokens."""
    folder = script("""
        from transformers import DataCollatorWithFlattening, DefaultDataCollator
        DefaultDataCollator()([{"input_ids": [1] * 4, "attention_mask": [1, 2, 2, 0]}] * 2)
        DataCollatorWithFlattening(return_flash_attn_kwargs=True)([{"input_ids": [1] * 2, "seq_lengths": [0, 2]}])
    """)
    assert "20.0% of the 10 tokens in batches were padding" in ran(folder, RUN, "script.py").stderr


@pytest.mark.slow
def test_processes_that_the_script_starts(script):
    folder = script(TRAIN.replace("data =", "args.dataloader_persistent_workers = True; data ="))
    script("import subprocess, sys\nsubprocess.run([sys.executable, 'script.py', '2'], check=True)", "start.py")
    done = ran(folder, RUN, "start.py")
    assert "12 batches: 12 compiled" in done.stderr
    assert not left_over(folder)


@pytest.mark.slow
def test_ranks_make_one_report(script):
    folder = script(TRAIN + LEAVE)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = ran(folder, [*launcher, "-m", "quadrat", "run", "--max-tokens", "auto"], "script.py", "0")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("6 steps an epoch, as before") == 1
    assert done.stderr.count("12 batches: 12 compiled, 0 fell back") == 1
    assert not left_over(folder)


IMPORTS = """
    import _imp, sys, threading
    from importlib.machinery import PathFinder

    done, both = threading.Event(), threading.Barrier(2)

    class Slow:
        def find_spec(self, name, path=None, target=None):
            if name != threading.current_thread().name:
                return None
            if sys.argv[1] == "found" and name == "transformers":
                held = 0
                while True:  # a finder that lets other threads import
                    try:
                        _imp.release_lock()
                    except RuntimeError:
                        break
                    held += 1
                assert done.wait()
                for _ in range(held):
                    _imp.acquire_lock()
            spec = PathFinder.find_spec(name, path, target)
            load = spec.loader.exec_module
            def exec_module(module):
                del spec.loader.exec_module
                load(module)
                if sys.argv[1] == "patched":
                    both.wait()  # so that both libraries are patched at the same time
            spec.loader.exec_module = exec_module
            return spec

    def load(name):
        __import__(name)
        done.set()

    sys.meta_path.insert(1, Slow())
    threads = [threading.Thread(target=load, name=name, args=[name]) for name in ("transformers", "datasets")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    import datasets, transformers
    print(transformers.DataCollatorWithPadding.__module__, datasets.Dataset.__getitem__.__module__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("together", ["found", "patched"])
def test_threads_that_import_at_the_same_time(script, together):
    done = ran(script(IMPORTS), RUN, "script.py", together)
    assert done.returncode == 0
    assert done.stdout.split() == ["quadrat.collators.padding", "quadrat.integration.patch_datasets"], done.stderr


@pytest.mark.slow
def test_pytest_passes_as_without(script):
    folder = script(
        "import transformers\n\ndef test_one():\n    assert transformers.DataCollatorWithPadding\n", "test_it.py"
    )
    done = ran(folder, RUN, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    assert done.returncode == 0
    assert "1 passed" in done.stdout


@pytest.mark.slow
def test_killed_and_resumed_in_mid_epoch(script):
    """The rows before the last checkpoint, and after it in the second run, are each row of each epoch once."""
    text = TRAIN.replace("[1] * min(90", "[i + 1] + [1] * min(90").replace("vocab_size=9", "vocab_size=99")
    text = text.replace('save_strategy="no"', 'save_strategy="steps", save_steps=4').replace("epochs=1", "epochs=2")
    text = text.replace("loss = super()", 'print("rows", *inputs["input_ids"][:, 0].tolist()); loss = super()')
    text = text.replace("compute_loss(self, *args", "compute_loss(self, model, inputs, *args")
    text = text.replace("compute_loss(*args", "compute_loss(model, inputs, *args").replace(".train()", "")
    ending = """
    import os, signal
    from transformers import TrainerCallback
    class Kill(TrainerCallback):
        def on_step_end(self, args, state, control, **options):
            if state.global_step == 6 and len(sys.argv) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
    trainer.add_callback(Kill())
    trainer.train(resume_from_checkpoint=len(sys.argv) > 2)
    """
    folder = script(text.replace("Printing(model", "trainer = Printing(model") + ending)
    killed = ran(folder, [*RUN, "--max-tokens", "400"], "script.py", "0")
    assert killed.returncode == -signal.SIGKILL
    resumed = ran(folder, [*RUN, "--max-tokens", "400"], "script.py", "0", "again")
    assert resumed.returncode == 0, resumed.stderr
    first, second = ([line.split()[1:] for line in run.stdout.splitlines() if line.startswith("rows")]
                     for run in (killed, resumed))  # fmt: skip
    seen = [int(number) for batch in [*first[:4], *second] for number in batch]
    rows = list(range(1, 97))
    assert sorted(seen[:96]) == sorted(seen[96:]) == rows
    assert len(first[:4] + second) % 2 == 0
    steps = len(first[:4] + second) // 2
    assert f"{steps} steps an epoch instead of 12" in resumed.stderr
    assert steps > 4


@pytest.mark.slow
def test_a_stream_goes_on_in_its_second_epoch(script):
    text = TRAIN.replace("data = Dataset.from_list(rows)", "data = Dataset.from_list(rows).to_iterable_dataset()")
    text = text.replace("num_train_epochs=1", "max_steps=20, save_steps=15").replace('"no", use', '"steps", use')
    whole = losses(ran(script(text), RUN, "script.py", "2").stdout)
    rest = losses(ran(script(text.replace("train()", "train('out/checkpoint-15')")), RUN, "script.py", "2").stdout)
    assert len(whole) == 20
    assert rest == whole[15:]
    without_place = ran(script(text), PYTHON, "script.py", "2")  # its checkpoint does not have the stream's
    assert without_place.returncode == 0
    alone = ran(script(text.replace("train()", "train('out/checkpoint-15')")), RUN, "script.py", "2")
    assert alone.returncode == 0, alone.stderr
    assert "the checkpoint does not say where it was in the stream: Trainer goes on as before" in alone.stderr
    assert len(losses(alone.stdout)) == 5
