"""Models of transformers in a loop by length: the outputs of each row alone, to rounding, in their own types."""

import pytest
import torch
import transformers
from datasets import Dataset
from transformers import BertForSequenceClassification, BertModel, set_seed
from transformers.modeling_outputs import SequenceClassifierOutput

import quadrat
from quadrat.batching import by_length, map_by_length
from support.isolated import in_two
from support.standins import TEXTS, encoder_config, encoder_tokenizer
from support.two_processes import mapped


def model_of(cls):
    set_seed(0)
    model = cls(encoder_config(num_labels=3)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # so that a token of another row would show
    return model


@pytest.mark.parametrize("max_tokens", ["auto", 1, 40])
def test_outputs_are_those_of_each_row_alone(max_tokens):
    tokenizer, model = encoder_tokenizer(), model_of(BertForSequenceClassification)
    collator = quadrat.DataCollatorWithPadding(tokenizer)

    def function(batch):
        output = model(**batch, output_hidden_states=True)
        output["hidden_states"] = tuple(
            quadrat.unpad(layer, mask=batch["attention_mask"]) for layer in output.hidden_states
        )
        return output

    with torch.inference_mode():
        alone = [model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True) for text in TEXTS]
        rows = Dataset.from_dict(dict(tokenizer(TEXTS)))
        for source in (TEXTS, rows, rows.with_format("torch")):
            outputs = map_by_length(function, source, tokenizer=tokenizer, collator=collator, max_tokens=max_tokens)
            assert type(outputs) is SequenceClassifierOutput
            assert list(outputs) == ["logits", "hidden_states"]
            for row, expected in enumerate(alone):
                torch.testing.assert_close(outputs.logits[row], expected.logits[0], rtol=1e-5, atol=1e-5)
                for states, of_row in zip(outputs.hidden_states, expected.hidden_states, strict=True):
                    torch.testing.assert_close(states[row], of_row[0], rtol=1e-5, atol=1e-5)
        streamed = map_by_length(function, iter(TEXTS), tokenizer=tokenizer, max_tokens=max_tokens, window=5)
        for row_output, expected in zip(streamed, alone, strict=True):
            assert type(row_output) is SequenceClassifierOutput
            torch.testing.assert_close(row_output.logits, expected.logits[0], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(row_output.hidden_states[1], expected.hidden_states[1][0], rtol=1e-5, atol=1e-5)


def test_a_collator_of_transformers_and_a_loop_of_ones_own():
    tokenizer, model = encoder_tokenizer(), model_of(BertModel)
    batches = by_length(TEXTS, tokenizer=tokenizer, collator=transformers.DataCollatorWithPadding(tokenizer))
    with torch.inference_mode():
        outputs = batches.restore([model(**batch).pooler_output for _, batch in batches])
        again = batches.restore([model(**batch).pooler_output for _, batch in batches])
        alone = torch.cat([model(**tokenizer(text, return_tensors="pt")).pooler_output for text in TEXTS])
    torch.testing.assert_close(outputs, again, rtol=0, atol=0)
    torch.testing.assert_close(outputs, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_two_processes(tmp_path):
    in_two(mapped, tmp_path)
