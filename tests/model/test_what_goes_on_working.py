"""What works with a model works with one whose padding is removed."""

import contextlib
import copy
import functools
import inspect
import io
import pickle

import pytest
import torch
from transformers import LlamaForCausalLM, MixtralForCausalLM

from quadrat import remove_padding
from support.families import DECODER, ENCODERS_TAKE_ROWS, padded_batch, tiny, tiny_of, with_labels
from support.threads import together
from support.without_padding import assert_same, assert_same_gradients, leaves


class Logits(torch.nn.Module):
    """A model whose output is a tensor, as traces need it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits


def changed(model):
    """The model with other weights."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled, saved])
@pytest.mark.parametrize("proven", [False, True])
def test_a_copy_computes_with_its_own_weights(duplicate, proven, model, reference, batch):
    mask = batch["attention_mask"]
    with remove_padding(model):
        if proven:
            model(**batch)
        twin = duplicate(model)
        changed(twin)
        assert_same(reference(**batch), model(**batch), mask)
        other = changed(copy.deepcopy(reference))
        assert_same(other(**batch), twin(**batch), mask)
        changed(changed(model))
        assert_same(other(**batch), twin(**batch), mask)
        twin(**batch).loss.backward()
        assert all(parameter.grad is None for parameter in model.parameters())


def test_saved_and_loaded(model, reference, batch, tmp_path):
    with remove_padding(model):
        model(**batch)
        assert list(model.state_dict()) == list(reference.state_dict())
        model.save_pretrained(tmp_path)
        loaded = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
        assert "quadrat" not in (tmp_path / "config.json").read_text()
    assert "quadrat" not in (model.config._attn_implementation, loaded.config._attn_implementation)
    assert_same(reference(**batch), loaded(**batch), batch["attention_mask"], 1e-13)


@pytest.mark.parametrize("end", ["undo", "with", "error"])
def test_the_end(end, model, reference, batch):
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    removed = remove_padding(model)
    if end == "undo":
        model(**batch)
        removed.undo()
    else:
        with contextlib.suppress(ValueError), removed:
            model(**batch)
            if end == "error":
                raise ValueError
    counted = removed.removed
    for (name, value), (_, other) in zip(leaves(reference(**batch)), leaves(model(**batch)), strict=True):
        assert torch.equal(value, other), name
    assert removed.removed == counted > 0
    assert model.config._attn_implementation == reference.config._attn_implementation
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before


def test_a_second_call_counts_with_the_first(model, reference, batch):
    first, second = remove_padding(model), remove_padding(model)
    assert_same(reference(**batch), model(**batch), batch["attention_mask"])
    assert first.removed == second.removed == (batch["attention_mask"] == 0).sum()
    assert all(len(module._forward_pre_hooks) <= 1 for module in model.modules())
    first.undo()
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("options", [{"use_reentrant": True}, {"use_reentrant": False}], ids=str)
@pytest.mark.parametrize("family", ["Llama", "DebertaV2"])
def test_gradient_checkpointing(family, options):
    """Layers are computed again after other batches were: token by token, nobody knows then which tokens are real."""
    reference, model = tiny(family), tiny(family)
    with remove_padding(model) as removed:
        for each in (reference, model):
            each.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
            each.train()
            batches = [with_labels(padded_batch(5, 12, seed=seed, left=seed == 2)) for seed in range(3)]
            sum(each(**batch).loss for batch in batches).backward()
        padding = sum(int((batch["attention_mask"] == 0).sum()) for batch in batches)
        assert removed.removed == (padding if family == "Llama" else 0)
    assert_same_gradients(reference, model)


def test_weights_get_gradients_under_autocast(model, reference, batch):
    """The proof computes without gradients: the weights that autocast then keeps would have none."""
    reference, model = reference.float(), model.float()
    with remove_padding(model) as removed:
        for module in (reference, model):
            module.train()
            with torch.autocast("cpu", torch.bfloat16):
                loss = module(**batch).loss
            loss.backward()
    assert removed.removed
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    assert_same_gradients(reference, model, 0.05)


@pytest.mark.parametrize("later", [False, True], ids=["before", "after"])
def test_hooks_of_users_get_padded_tensors(later, model, reference, batch):
    shapes = []

    def before(module, args, kwargs):
        shapes.append({name: value.shape for name, value in kwargs.items() if isinstance(value, torch.Tensor)})

    def after(module, args, kwargs, output):
        before(module, args, kwargs)
        shapes.append(output[0].shape)

    def add(module):
        backbone = module.model
        backbone.register_forward_pre_hook(before, with_kwargs=True)
        backbone.register_forward_hook(after, with_kwargs=True)
        backbone.register_forward_hook(after, with_kwargs=True, prepend=True)

    add(reference)
    reference.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    expected = shapes[:]
    if not later:
        add(model)
    with remove_padding(model) as removed:
        if later:
            model.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
            add(model)
        for again in range(3):
            shapes.clear()
            counted = removed.removed
            model.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
            assert all(shape in expected for shape in shapes)  # of the proof, too
            assert shapes == expected or not again
            assert removed.removed > counted or not again


def test_threads(model, reference):
    batches = [padded_batch(5, 6 + 3 * seed, seed=seed, left=seed % 2 == 1) for seed in range(6)]
    other, other_reference = tiny("GPT2"), tiny("GPT2")

    def run(batch):
        with torch.no_grad():
            for _ in range(4):
                assert_same(reference(**batch), model(**batch), batch["attention_mask"])
                assert_same(other_reference(**batch), other(**batch), batch["attention_mask"])

    with remove_padding(model) as first, remove_padding(other) as second:
        together(*[functools.partial(run, batch) for batch in batches])
    assert first.removed == second.removed == 4 * sum(int((batch["attention_mask"] == 0).sum()) for batch in batches)


@pytest.mark.parametrize("place", ["model", "lm_head"])
def test_after_an_interrupt(place, model, reference):
    """The next call is right: of the model, of its backbone, of another model, without padding."""

    def interrupt(module, *_):
        if interrupts:
            raise KeyboardInterrupt

    batch, other, interrupts = padded_batch(5, 12), tiny("Qwen2"), []
    full = {"input_ids": torch.arange(12)[None] + 5, "attention_mask": torch.ones(1, 12).long()}
    ids, mask = batch["input_ids"], batch["attention_mask"]
    calls = [
        (model, reference, batch),
        (model.model, reference.model, {"input_ids": ids, "attention_mask": mask}),
        (other, tiny("Qwen2"), batch),
        (model, reference, full),
        (other, tiny("Qwen2"), full),
    ]
    module = model.lm_head if place == "lm_head" else model.model.layers[1].mlp
    module.register_forward_hook(interrupt)
    with remove_padding(model), remove_padding(other), torch.no_grad():
        for target, expected, arguments in calls:
            model(**batch)
            other(**batch)
            interrupts.append(1)
            with pytest.raises(KeyboardInterrupt):
                model(**batch)
            interrupts.clear()
            assert_same(expected(**arguments), target(**arguments), arguments["attention_mask"])


def test_the_proof_leaves_no_trace(batch):
    """Generators, buffers (a dynamic rotary embedding keeps the longest length), modes and inputs are as before."""
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    options = {"rope_scaling": rope, "max_position_embeddings": 8}
    model, reference = (tiny_of(LlamaForCausalLM, DECODER, **options) for _ in range(2))
    model.model.layers[0].train()
    reference.model.layers[0].train()
    modes = [module.training for module in model.modules()]
    inputs, state = copy.deepcopy(batch), torch.get_rng_state()
    with remove_padding(model):
        short = {name: value[:, :4] for name, value in batch.items()}
        for arguments in (batch, short, with_labels(padded_batch(5, 9, left=True)), short):
            assert_same(reference(**arguments), model(**arguments), arguments["attention_mask"])
    assert torch.equal(state, torch.get_rng_state())
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(batch[name], inputs[name]) for name in batch)
    for (name, value), (_, other) in zip(reference.named_buffers(), model.named_buffers(), strict=True):
        assert torch.equal(value, other), name


def test_generate(model, reference):
    batch = padded_batch(4, 8, left=True)
    options = {"max_new_tokens": 6, "do_sample": False, "return_dict_in_generate": True, "output_scores": True}
    with remove_padding(model):
        expected, got = reference.generate(**batch, **options), model.generate(**batch, **options)
    assert torch.equal(got.sequences, expected.sequences)
    torch.testing.assert_close(torch.stack(got.scores), torch.stack(expected.scores))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own classes
@pytest.mark.parametrize("how", ["compiled", "exported"])
def test_recorded(how, model, reference):
    batch = padded_batch(4, 8)
    with remove_padding(model) as removed, torch.no_grad():
        if how == "compiled":
            recorded = torch.compile(model, backend="eager")
        else:
            model.config.use_cache = reference.config.use_cache = False
            recorded = torch.export.export(model, (), batch, strict=False).module()
        assert_same(reference(**batch), recorded(**batch), batch["attention_mask"])
    assert not removed.removed


@pytest.mark.skipif(not ENCODERS_TAKE_ROWS, reason="torch cannot trace a Llama of transformers 4.57")
@pytest.mark.filterwarnings("ignore:.*jit", "ignore::torch.jit.TracerWarning")
def test_traced(model, reference):
    """A trace has the model as it is, so it computes other masks, too."""
    batch, other = padded_batch(4, 8), padded_batch(4, 8, seed=1)
    names = ("input_ids", "attention_mask")

    with remove_padding(model) as removed, torch.no_grad():
        model(**batch)  # has been proven
        counted = removed.removed
        traced = torch.jit.trace(Logits(model), tuple(batch[name] for name in names), check_trace=False)
        logits = traced(*(other[name] for name in names))
        assert removed.removed == counted > 0
    real = other["attention_mask"].bool()
    torch.testing.assert_close(logits[real], reference(**other).logits[real], rtol=0, atol=1e-9)


@pytest.mark.parametrize("logits", [False, True])
def test_losses_of_experts(logits, batch):
    """The loss that balances experts reads the mask."""
    options = DECODER | {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": logits}
    model, reference = (tiny_of(MixtralForCausalLM, options) for _ in range(2))
    with remove_padding(model):
        for module in (reference, model):
            module(**batch).loss.backward()
        expected, got = reference(**batch), model(**batch)
        torch.testing.assert_close(got.loss, expected.loss, rtol=1e-6, atol=0)
        if logits:
            torch.testing.assert_close(got.aux_loss, expected.aux_loss, rtol=1e-6, atol=0)
            assert [tensor.shape for tensor in got.router_logits] == [tensor.shape for tensor in expected.router_logits]
    assert_same_gradients(reference, model)


def test_forward_that_is_called_without_hooks(model, reference, batch):
    """sentence-transformers and PEFT call `model.forward`, whose signature says what it takes."""
    assert inspect.signature(model.forward) == inspect.signature(reference.forward)
    with remove_padding(model) as removed:
        assert inspect.signature(model.forward) == inspect.signature(reference.forward)
        assert_same(reference(**batch), model.forward(**batch), batch["attention_mask"])
        counted = removed.removed
        assert counted
        twin = changed(copy.deepcopy(model))
        assert_same(changed(copy.deepcopy(reference))(**batch), twin.forward(**batch), batch["attention_mask"])
        replica = model._replicate_for_data_parallel()
        assert replica.forward == model.forward
        forward = model.forward
    assert "forward" not in vars(model)
    assert_same(reference(**batch), forward(**batch), batch["attention_mask"])
    assert removed.removed == counted
