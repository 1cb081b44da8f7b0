"""`quadrat run` counts the padding that models are called with, whoever calls them; `--remove-padding` acts."""

from types import SimpleNamespace

import pytest
import torch

from quadrat.cli.events import EventLog, read_events
from quadrat.cli.loop_timing import LoopTiming
from quadrat.cli.model_calls import ModelCalls
from support import standins
from support.command import RUN, ran, reported

MODELS = """
import sys
import torch
from transformers import BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, set_seed
from support import standins

mask = (torch.arange(6) < torch.tensor([6, 2, 4])[:, None]).long()
ids = mask * 5
set_seed(0)
model = BertForSequenceClassification(standins.encoder_config()).eval()
compiled = torch.compile(model, backend="eager", fullgraph=True)
compiled(ids, attention_mask=mask)
for _ in range(2):
    logits = model(ids, attention_mask=mask, token_type_ids=mask * 0).logits
    model(ids[:1], mask[:1])  # without padding
model(inputs_embeds=torch.zeros(3, 6, model.config.hidden_size), attention_mask=mask)
gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=99, bos_token_id=1, eos_token_id=1))
gpt2.generate(ids.flip(1), attention_mask=mask.flip(1), max_new_tokens=3, pad_token_id=0)  # counts once
try:
    model(ids, attention_mask=mask, labels=torch.zeros(7, 7))
except Exception as error:
    frames = []
    while error.__traceback__ is not None:
        frames.append(error.__traceback__.tb_frame.f_code.co_filename)
        error.__traceback__ = error.__traceback__.tb_next
    torch.save(logits, "logits.pt")
    print(any("/quadrat/cli/" in name or "/quadrat/support/" in name for name in frames))
"""
CALLS = {"calls": 7, "called_with": 4 * 18 + 2 * 6 + 18, "tokens": 4 * 12 + 2 * 6 + 12}


@pytest.mark.slow
def test_calls_of_models_are_counted(tmp_path):
    done, report = reported(tmp_path, MODELS)
    assert done.stdout.split() == ["False"]
    assert report["models"] == {"outside of loops": {**CALLS, "removed": 0, "shared": 0}}
    padding = "models were called with 102 tokens outside of loops, of which 29.4% were padding"
    assert f"{padding}; --remove-padding leaves them out" in done.stderr
    expected = torch.load(tmp_path / "logits.pt")
    done, report = reported(tmp_path, MODELS, options=["--remove-padding"])
    assert done.stdout.split() == ["False"]
    assert report["models"] == {"outside of loops": {**CALLS, "removed": 3 * 6, "shared": 0}}
    assert f"{padding}; --remove-padding left out 18 tokens" in done.stderr
    assert report["options"] == {"--remove-padding": 2}
    torch.testing.assert_close(torch.load(tmp_path / "logits.pt"), expected, rtol=1e-4, atol=1e-5)


SHARING = """
import torch
from transformers import LlamaForCausalLM
from support.families import DECODER, tiny_of

ids = torch.arange(3, 33).repeat(4, 1)
ids[:, 20:] += torch.arange(4)[:, None]
mask = torch.ones_like(ids)
ids[3, 25:] = mask[3, 25:] = 0
model = tiny_of(LlamaForCausalLM, DECODER)
for _ in range(2):
    model(ids, attention_mask=mask)
"""


@pytest.mark.slow
def test_tokens_that_rows_share_are_counted(tmp_path):
    done, report = reported(tmp_path, SHARING, options=["--remove-padding"])
    counted = {"calls": 2, "called_with": 240, "tokens": 230, "removed": 2 * 5, "shared": 2 * 3 * 20}
    assert report["models"] == {"outside of loops": counted}
    assert "--remove-padding left out 10 tokens, and 120 that rows share" in done.stderr
    _, report = reported(tmp_path, SHARING)
    assert report["models"] == {"outside of loops": counted | {"removed": 0, "shared": 0}}


class MaskElsewhere:
    """A mask of six places and four tokens on another device."""

    is_meta = is_cuda = False
    device, shape = SimpleNamespace(type="other"), (2, 3)

    def __ne__(self, value):
        return torch.tensor([[1, 1, 1], [1, 0, 0]]) != value

    def numel(self):
        return 6


@pytest.mark.parametrize("calls", [3, 70, 100])
def test_masks_on_a_device_are_read_together(tmp_path, calls):
    events = EventLog(str(tmp_path))
    models, ids = ModelCalls(LoopTiming(events), print, removes=False), torch.ones(2, 3)
    for _ in range(calls):
        models._end_call(models._begin_call(torch.nn.Identity(), input_ids=ids, attention_mask=MaskElsewhere()), None)
        assert len(models._unread) < 64
    assert (models._unread == []) == (calls < 8)
    models.read()
    (sums,) = read_events(tmp_path)[0].values()
    assert (sums["model_calls"], sums["model_computed"], sums["model_tokens"]) == (calls, 6 * calls, 4 * calls)


CALLERS = """
import sys
import sentence_transformers
from sentence_transformers import SentenceTransformer
from transformers import BertForSequenceClassification, Trainer, pipeline
from support import standins
from support.trainer import DETERMINISTIC, arguments, tiny
import quadrat
from support.strategies import make_tokenizer

tokenizer, texts = standins.encoder_tokenizer(), standins.TEXTS
SentenceTransformer(sys.argv[1], device="cpu").encode(texts, batch_size=12)
model = BertForSequenceClassification(standins.encoder_config())
pipeline("text-classification", model, tokenizer=tokenizer, device="cpu", batch_size=4)(texts)
rows = [{"input_ids": [1] * (1 + row % 5), "labels": row % 2} for row in range(8)]
args = arguments("out", num_train_epochs=1, per_device_train_batch_size=4, per_device_eval_batch_size=4)
trainer = Trainer(tiny(BertForSequenceClassification, **DETERMINISTIC), args, train_dataset=rows, eval_dataset=rows,
    data_collator=quadrat.DataCollatorWithPadding(make_tokenizer()))
trainer.train()
trainer.evaluate()
"""


@pytest.mark.slow
def test_whoever_calls_a_model(tmp_path):
    """Sentence-transformers, a pipeline, and a Trainer in both of its loops. None of them has a loop of a pipeline."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers, which calls a model, is missing")
    standins.save_encoder(tmp_path / "model")
    done, report = reported(tmp_path, CALLERS, "model", options=["--remove-padding"])
    assert "is not patched" not in done.stderr
    assert set(report["models"]) == {"training", "evaluation", "outside of loops"}
    for calls in report["models"].values():
        assert calls["removed"] == calls["called_with"] - calls["tokens"] > 0
    assert report["loops"]["training"]["batches"] == report["loops"]["evaluation"]["batches"] == 2
    assert report["models"]["evaluation"]["tokens"] == 2 * report["models"]["training"]["tokens"] / 2 == 21


STREAM = """
import sys, torch
from torch.utils.data import IterableDataset
from transformers import BertForSequenceClassification, Trainer
from support.trainer import arguments, tiny

rows = [{"input_ids": [1] * (1 + row), "labels": row % 2} for row in range(8)]

class Stream(IterableDataset):
    def __iter__(self):
        return iter(rows)

def collate(rows):
    width = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in rows])
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}

args = arguments("out", max_steps=2, logging_strategy="no", dataloader_num_workers=int(sys.argv[1]))
Trainer(tiny(BertForSequenceClassification), args, train_dataset=Stream(), data_collator=collate).train()
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_stream_with_a_collator_of_the_scripts(tmp_path, workers):
    _, report = reported(tmp_path, STREAM, workers)
    assert (report["others"], report["computed"], report["tokens"]) == (2, 4 * 4 + 4 * 8, 36)
    assert report["models"]["training"]["tokens"] == 36


WRAPPED = """
from transformers import BertForSequenceClassification, Trainer
from support.trainer import arguments, tiny
import quadrat
from support.strategies import make_tokenizer

original = Trainer.train
def train(self, *args, **options):
    return original(self, *args, **options)
Trainer.train = train

rows = [{"input_ids": [1] * (1 + row % 9), "labels": row % 2} for row in range(24)]
args = arguments("out", max_steps=1, per_device_train_batch_size=8)
trainer = Trainer(tiny(BertForSequenceClassification), args, train_dataset=rows,
    data_collator=quadrat.DataCollatorWithPadding(make_tokenizer()))
assert callable(trainer.train) and hasattr(trainer, "train")
print(trainer.train_dataset is rows, flush=True)
trainer.train()
print(trainer.train_dataset is rows)
"""


@pytest.mark.slow
def test_a_wrapped_train_is_that_of_a_trainer(tmp_path):
    """Also, looking at it changes nothing."""
    (tmp_path / "script.py").write_text(WRAPPED)
    done = ran(tmp_path, [*RUN, "--max-tokens", "auto"], "script.py")
    assert done.stdout.splitlines()[::2] == ["True", "False"], done.stderr  # between them what was logged
    assert "quadrat run: batches of at most" in done.stderr
    assert "did nothing" not in done.stderr


@pytest.mark.slow
def test_hooks_wait_for_an_import_of_quadrats(tmp_path):
    """A library that quadrat's own module loads is patched after that module."""
    (tmp_path / "script.py").write_text(
        "import quadrat.integration.patch_transformers, transformers\n"
        "print(transformers.DataCollatorWithPadding.__module__)"
    )
    done = ran(tmp_path, RUN, "script.py")
    assert done.stdout == "quadrat.collators.padding\n", done.stderr
    assert "is not patched" not in done.stderr


ACCELERATED = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding
from support.strategies import make_tokenizer

rows = [{"input_ids": [1] * (1 + row % 7)} for row in range(16)]
loader = DataLoader(rows, batch_size=4, shuffle=True, collate_fn=DataCollatorWithPadding(make_tokenizer()))
weight = torch.nn.Linear(1, 1)
model, optimizer, loader = Accelerator(cpu=True).prepare(weight, torch.optim.SGD(weight.parameters(), 0.1), loader)
for _ in range(2):
    for batch in loader:
        model(batch["input_ids"].float().mean()[None]).backward()
        optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--max-tokens", "auto"]])
def test_a_loop_with_accelerate(tmp_path, options):
    done, report = reported(tmp_path, ACCELERATED, options=options)
    assert report["loops"]["training"]["batches"] == report["loops"]["training"]["steps"] == report["compiled"]
    assert "evaluation" not in report["loops"]
    assert ("batches of at most" in done.stderr) == bool(options)
    assert ("--max-tokens" in report["options"]) == bool(options)
    assert "did nothing" not in done.stderr


GRPO = """
import warnings
warnings.simplefilter("ignore")
from model.test_prompt_groups import trainer_of
trainer_of("GRPO", "out").train()
"""


@pytest.mark.slow
def test_online_training(tmp_path):
    """Batches are those of collators, in number and in time, and no line contradicts another one."""
    pytest.importorskip("trl", reason="TRL, whose trainer is run, is not installed")
    done, report = reported(tmp_path, GRPO)
    assert (report["compiled"], report["fell_back"], report["seconds"]) == (0, 0, 0)
    assert report["models"]["training"]["called_with"] > report["models"]["training"]["tokens"]
    assert "; --remove-padding leaves them out" in done.stderr
    assert "--max-tokens" not in done.stderr
