"""DataCollatorWithPadding and DataCollatorForTokenClassification == those of the installed transformers."""

from hypothesis import given
from hypothesis import strategies as st

from support.compare import assert_identical, both
from support.strategies import features, tokenizers

OPTIONS = st.fixed_dictionaries(
    {
        "padding": st.sampled_from([True] * 6 + ["longest", "max_length", False, "do_not_pad", "wrong"]),
        "max_length": st.sampled_from([None, None, None, 4, 9]),
        "pad_to_multiple_of": st.sampled_from([None] * 4 + [1, 4, 8, 4, 8, True, 0]),
        "return_tensors": st.sampled_from(["pt"] * 3 + ["np"] * 3 + [None]),
    }
)


@given(tokenizers(), features(), OPTIONS)
def test_with_padding(tokenizer, batch, options):
    assert_identical(*both("DataCollatorWithPadding", tokenizer, **options), batch)


@given(tokenizers(), st.sampled_from(["labels", "label"]).flatmap(lambda name: features(labels=name)), OPTIONS)
def test_token_classification(tokenizer, batch, options):
    options["return_tensors"] = options["return_tensors"] or "pt"
    collators = both("DataCollatorForTokenClassification", tokenizer, label_pad_token_id=-100, **options)
    assert_identical(*collators, batch)


@given(tokenizers(), features())
def test_token_classification_without_labels(tokenizer, batch):
    assert_identical(*both("DataCollatorForTokenClassification", tokenizer), batch)
