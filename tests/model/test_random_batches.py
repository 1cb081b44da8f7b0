"""`remove_padding` on drawn batches: equal to a copy of the model that computes padding, or left as it is."""

import copy
import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quadrat import remove_padding
from support.families import DECODER, ENCODER, VOCABULARY, padded_batch, tiny_of
from support.without_padding import assert_same, assert_same_gradients, way

# `make test-rest` draws 100 batches for each model.
MODELS = {
    "BertForMaskedLM": ENCODER,
    "BertForSequenceClassification": ENCODER,
    "BertForTokenClassification": ENCODER,
    "LlamaForCausalLM": DECODER,
    "LlamaForSequenceClassification": DECODER,
}


@functools.cache
def models(name):
    model = tiny_of(name, MODELS[name])
    reference = copy.deepcopy(model)
    return reference, model, remove_padding(model)


@st.composite
def masks(draw, rows, width):
    """int64 `[rows, width]`: rows of drawn lengths on the right or left, or with holes; rows without tokens."""
    kind = draw(st.sampled_from(["right", "left", "holes", "one token", "full"]))
    if kind == "one token":
        mask = torch.zeros(rows, width, dtype=torch.int64)
        mask[draw(st.integers(0, rows - 1)), draw(st.integers(0, width - 1))] = 1
        return mask
    if kind == "holes":
        bits = st.lists(st.integers(0, 1), min_size=width, max_size=width)
        return torch.tensor(draw(st.lists(bits, min_size=rows, max_size=rows)))
    least = width if kind == "full" else draw(st.integers(0, 1))
    lengths = torch.tensor(draw(st.lists(st.integers(least, width), min_size=rows, max_size=rows)))
    mask = (torch.arange(width) < lengths[:, None]).long()
    return mask.flip(1) if kind == "left" else mask


@st.composite
def calls(draw, name):
    """The real tokens, and positional and named arguments of a call."""
    rows, width = draw(st.integers(1, 6)), draw(st.integers(1, 24))
    real = draw(masks(rows, width))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    ids = torch.randint(1, VOCABULARY, (rows, width), generator=generator)
    if draw(st.booleans()):
        ids = ids.masked_fill(real == 0, 0)
    mask = {
        "int": real,
        "bool": real.bool(),
        "float": real.double(),
        "documents": real * torch.randint(1, 4, real.shape, generator=generator),
    }[draw(st.sampled_from(["int", "int", "bool", "float", "documents"]))]
    arguments = {"input_ids": ids, "attention_mask": mask}
    if draw(st.integers(0, 3)) == 0 and name != "LlamaForSequenceClassification":  # where a row ends is read from ids
        del arguments["input_ids"]
        arguments["inputs_embeds"] = torch.randn(rows, width, 32, generator=generator, dtype=torch.float64)
    if draw(st.integers(0, 3)) == 0:
        positions = draw(st.sampled_from([(real.cumsum(1) - 1).clamp(0), torch.arange(width).flip(0)[None]]))
        arguments["position_ids"] = positions
    if "Bert" in name and draw(st.booleans()):
        arguments["token_type_ids"] = torch.randint(0, 2, real.shape, generator=generator)
    arguments |= draw(options(name, real, generator))
    if draw(st.booleans()) and "input_ids" in arguments:
        return real, (arguments.pop("input_ids"), arguments.pop("attention_mask")), arguments
    return real, (), arguments


@st.composite
def options(draw, name, real, generator):
    """Labels, and what is asked of a model."""
    (rows, width), arguments = real.shape, {}
    if draw(st.booleans()):
        labels = torch.randint(0, 2, (rows,) if "Sequence" in name else real.shape, generator=generator)
        kept = draw(st.sampled_from(["everywhere", "at tokens", "but first"]))
        if labels.dim() == 2 and kept != "everywhere":
            seen = real if kept == "at tokens" else real * torch.nn.functional.pad(real[:, :-1], (1, 0))
            labels = labels.where(seen.bool(), -100)
        arguments["labels"] = labels
    if name == "LlamaForCausalLM" and draw(st.integers(0, 2)) == 0:
        arguments["logits_to_keep"] = draw(st.sampled_from([1, 3, torch.arange(width)[-2:]]))
        arguments.pop("labels", None)
    for flag in ("output_hidden_states", "output_attentions", "use_cache"):
        if draw(st.integers(0, 4)) == 0 and not (flag == "use_cache" and "Bert" in name):
            arguments[flag] = True
    if draw(st.integers(0, 4)) == 0:
        arguments["return_dict"] = False
    return arguments


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_random_batches(name, data):
    reference, model, removed = models(name)
    real, args, arguments = data.draw(calls(name))
    if arguments.get("output_attentions"):
        for module in (reference, model):
            module.set_attn_implementation("eager")
    copies = [copy.deepcopy(arguments) for _ in range(2)]
    before = removed.removed
    try:
        expected = reference(*args, **copies[0])
    except Exception as error:
        with pytest.raises(type(error)):
            model(*args, **copies[1])
        return
    finally:
        reference.set_attn_implementation("sdpa")
    got = model(*args, **copies[1])
    model.set_attn_implementation("sdpa")
    if arguments.get("return_dict") is False:
        # Without a cache where none is asked for.
        expected = tuple(value for value in expected if isinstance(value, torch.Tensor) or type(value) is tuple)
        got = tuple(value for value in got if isinstance(value, torch.Tensor) or type(value) is tuple)
    zeros = removed.removed > before and way(removed) == "flat"
    assert_same(expected, got, real, 1e-10, zeros=zeros, scores="Sequence" in name)
    for key, value in arguments.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(copies[1][key], value), key
    for module, output in ((reference, expected), (model, got)):
        module.zero_grad()
        loss = output[0] if arguments.get("return_dict") is False else getattr(output, "loss", None)
        if "labels" in arguments and loss.requires_grad and loss.isfinite():
            loss.backward()
    if any(parameter.grad is not None and parameter.grad.any() for parameter in reference.parameters()):
        assert_same_gradients(reference, model, 1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_padding_of_plain_batches_is_removed(name):
    """The test above does not compare batches that were left alone only."""
    _, model, removed = models(name)
    before = removed.removed
    batch = padded_batch(5, 12)
    model(**batch)
    assert removed.removed - before == int((1 - batch["attention_mask"]).sum())
