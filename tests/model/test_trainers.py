"""Trainers train the same without padding: weights after four steps, from the real tokens alone."""

import pytest
import torch
import transformers
from transformers import Trainer, TrainingArguments, pipeline

from quadrat import remove_padding
from support import standins
from support.families import DECODER, ENCODER, tiny_of
from support.padded_trainings import QUIET, Tokens, assert_trains_the_same, collate, differences, rows_of


def rows_for(task):
    ids = rows_of(16)
    mask = [[1] * len(row) for row in ids]
    if task == "multiple choice":
        ids = [[row, row[::2]] for row in ids]
        mask = [[[1] * len(row) for row in both] for both in ids]
        labels = [{"labels": at % 2} for at in range(16)]
    elif task == "text classification":
        labels = [{"labels": at % 2} for at in range(16)]
    elif task == "question answering":
        labels = [{"start_positions": 0, "end_positions": 1}] * 16
    elif task == "token classification":
        labels = [{"labels": [token % 2 for token in row]} for row in ids]
    else:
        labels = [{"labels": [token if token % 3 else -100 for token in row]} for row in ids]
    both = zip(ids, mask, labels, strict=True)
    return [{"input_ids": row, "attention_mask": of_row, **label} for row, of_row, label in both]


# A task, its model, and whether that is left alone.
TASKS = {
    "text classification": ("BertForSequenceClassification", ENCODER, False),
    "token classification": ("BertForTokenClassification", ENCODER, False),
    "question answering": ("BertForQuestionAnswering", ENCODER, True),
    "multiple choice": ("BertForMultipleChoice", ENCODER, False),
    "masked words": ("BertForMaskedLM", ENCODER, False),
    "next words": ("LlamaForCausalLM", DECODER, False),
    "text classification by a decoder": ("LlamaForSequenceClassification", DECODER, False),
}


@pytest.mark.parametrize("task", TASKS)
def test_trainer(task, tmp_path):
    name, settings, left = TASKS[task]
    data = rows_for(task if "decoder" not in task else "text classification")

    def build():
        args = TrainingArguments(str(tmp_path), **QUIET)
        return Trainer(tiny_of(name, settings), args, train_dataset=data, data_collator=collate)

    assert_trains_the_same(build, left=left)


def test_a_loop_of_accelerate():
    accelerate = pytest.importorskip("accelerate")
    data, weights, counted = rows_for("token classification"), [], []
    for removes in (False, True):
        accelerator = accelerate.Accelerator(cpu=True)
        model = tiny_of("BertForTokenClassification", ENCODER)
        tokens = Tokens(model)
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        loader = torch.utils.data.DataLoader(data, batch_size=4, collate_fn=collate)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        if removes:
            remove_padding(model)
        for batch in loader:
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()
        weights.append(dict(model.named_parameters()))
        counted.append(tokens)
    assert max(differences(*weights)) <= 1e-7
    assert set(counted[1].computed.values()) == {counted[1].real}


@pytest.mark.parametrize("task", ["text-classification", "token-classification", "feature-extraction"])
def test_pipelines(task):
    cls = {"text-classification": "BertForSequenceClassification", "token-classification": "BertForTokenClassification"}
    settings = standins.encoder_config().to_dict()
    texts = standins.texts_of([1 + 7 * at % 30 for at in range(20)])
    outputs = []
    for removes in (False, True):
        model = tiny_of(cls.get(task, "BertModel"), settings)
        texts_to = pipeline(task, model=model, tokenizer=standins.encoder_tokenizer(), batch_size=8, device="cpu")
        removed = remove_padding(texts_to) if removes else None
        outputs.append(texts_to(texts))
    assert removed.removed
    expected, got = (
        [output for row in rows for output in (row if isinstance(row, list) else [row])] for rows in outputs
    )
    for output, other in zip(expected, got, strict=True):
        if isinstance(output, dict):
            assert output | {"score": 0} == other | {"score": 0}
            assert other["score"] == pytest.approx(output["score"], abs=1e-6)
        else:  # outputs of padding are part of this pipeline's outputs
            torch.testing.assert_close(torch.tensor(other)[:1], torch.tensor(output)[:1], rtol=0, atol=1e-6)


def test_sentence_transformer(tmp_path):
    """In-batch negatives: each row's loss reads all rows of the batch."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    datasets = pytest.importorskip("datasets")
    standins.save_encoder(tmp_path)
    texts = standins.texts_of([1 + 7 * at % 29 for at in range(32)])
    data = datasets.Dataset.from_dict({"anchor": texts[:16], "positive": texts[16:]})

    def build(removes):
        model = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu").double()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        tokens = Tokens(next(part for part in model.modules() if isinstance(part, transformers.PreTrainedModel)))
        args = sentence_transformers.SentenceTransformerTrainingArguments(str(tmp_path), **QUIET)
        loss = MultipleNegativesRankingLoss(model)
        trainer = sentence_transformers.SentenceTransformerTrainer(model, args, train_dataset=data, loss=loss)
        if removes:
            remove_padding(trainer)
        trainer.train()
        return dict(model.named_parameters()), tokens

    (expected, _), (got, tokens) = build(removes=False), build(removes=True)
    assert max(differences(expected, got)) <= 1e-7
    assert set(tokens.computed.values()) == {tokens.real}
