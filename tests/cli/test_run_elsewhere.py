"""The report of `quadrat run` on batches that no collator makes: of pipelines, tokenizers, sentence-transformers."""

import pytest

from support import standins
from support.command import reported

SCRIPT = """
from support import standins
from transformers import BertForSequenceClassification, TextGenerationPipeline, pipeline, set_seed

set_seed(0)
tokenizer, texts = standins.encoder_tokenizer(), standins.TEXTS * 8
model = BertForSequenceClassification(standins.encoder_config())
classify = pipeline("text-classification", model, tokenizer=tokenizer, device="cpu", batch_size=4)
assert len(classify(texts)) == len(texts)
decoder_tokenizer = standins.decoder_tokenizer(padding_side="left")
TextGenerationPipeline(standins.decoder(), decoder_tokenizer, max_new_tokens=2, batch_size=2)(texts[:4])
for first in range(0, 96, 8):
    tokenizer(texts[first : first + 8], padding=True, return_tensors="pt")
    tokenizer.pad(tokenizer(texts[first : first + 8]), return_tensors="pt")
tokenizer(texts, padding=True)  # not a batch of tensors
"""


@pytest.mark.slow
def test_pipelines_and_tokenizers_are_counted(tmp_path):
    done, report = reported(tmp_path, SCRIPT)
    said, counts = done.stderr, report["elsewhere"]
    assert (counts["pipelines rows"], counts["pipelines batches"]) == (96, 24)
    assert 1.1 * counts["pipelines tokens"] < counts["pipelines computed"]
    assert counts["tokenizer calls batches"] == 24
    assert counts["tokenizer calls rows"] == 192
    assert "tokens were padding; quadrat.batching.map_by_length makes batches by length" in said
    assert "evaluation waited" not in said  # a pipeline's preprocessing is no loop


WORKERS = """
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding
from support import standins

rows = [{"input_ids": [5] * length, "score": [1, 0.5]} for length in (1, 2, 3, 4)]
collate = DataCollatorWithPadding(standins.encoder_tokenizer())
for workers in (0, 1):
    assert len(list(DataLoader(rows, batch_size=2, collate_fn=collate, num_workers=workers))) == 2
"""


@pytest.mark.slow
def test_batches_that_fall_back_are_no_calls_of_a_tokenizer(tmp_path):
    """Also in a worker, which is a fork and has numbers of its own."""
    _, counts = reported(tmp_path, WORKERS)
    assert counts["fell_back"] == 4
    assert counts["elsewhere"] == {}


SENTENCES = """
import sys
from sentence_transformers import SentenceTransformer
from support import standins

texts = standins.TEXTS * 8
SentenceTransformer(sys.argv[1], device="cpu").encode(texts, batch_size=12)
"""


def counted(folder, script):
    """What the report of `quadrat run` counts of a script that gets a small encoder."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers, whose texts are counted, is missing")
    standins.save_encoder(folder / "model")
    _, report = reported(folder, script, "model")
    return report["elsewhere"]


@pytest.mark.slow
def test_sentences_are_counted(tmp_path):
    counts = counted(tmp_path, SENTENCES)
    assert (counts["sentence-transformers batches"], counts["sentence-transformers rows"]) == (8, 96)
    assert 0 < counts["sentence-transformers tokens"] < counts["sentence-transformers computed"]
    assert not [name for name in counts if not name.startswith("sentence-transformers")]


TRAINING = """
import sys
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from support import standins

model = SentenceTransformer(sys.argv[1], device="cpu")
rows = Dataset.from_dict({"anchor": standins.TEXTS * 8, "positive": standins.TEXTS[1:] * 8 + standins.TEXTS[:1] * 8})
args = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "bf16": False}
args = SentenceTransformerTrainingArguments("out", num_train_epochs=1, **args)
SentenceTransformerTrainer(model, args, train_dataset=rows, loss=MultipleNegativesRankingLoss(model)).train()
"""


@pytest.mark.slow
def test_training_on_sentences(tmp_path):
    counts = counted(tmp_path, TRAINING)
    name = "training of sentence-transformers"
    assert counts[f"{name} rows"] == 96
    assert all(one.startswith(name) for one in counts)  # not what a model card tokenises
    assert 0 < counts[f"{name} tokens"] < counts[f"{name} computed"]
