"""Models within models: the encoder of an encoder-decoder, the text model of a vision-language model."""

import inspect

import pytest
import torch

from quadrat import remove_padding
from support.families import DECODER, ENCODER, VOCABULARY, padded_batch, tiny_of
from support.without_padding import assert_same_gradients, leaves, way

_BOTH = {
    **{"vocab_size": VOCABULARY, "d_model": 32, "max_position_embeddings": 64, "pad_token_id": 0, "eos_token_id": 2},
    **{f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in (("layers", 2), ("ffn_dim", 48))},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "decoder_start_token_id": 2},
}
PAIRS = {
    "BartForConditionalGeneration": _BOTH,
    "MarianMTModel": _BOTH | {"forced_eos_token_id": None},
    "T5ForConditionalGeneration": {
        **{"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        **{"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 2},
    },
}


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("name", PAIRS)
def test_encoder_decoder(name, left):
    """The encoder computes real tokens alone where it can; the decoder sees no padding of it."""
    reference, model = (tiny_of(name, PAIRS[name]) for _ in range(2))
    batch = padded_batch(5, 12, left=left)
    batch["labels"] = torch.randint(5, VOCABULARY, (5, 7), generator=torch.Generator().manual_seed(1))
    with remove_padding(model) as removed:
        for module in (reference, model):
            module.train()
            output = module(**batch, use_cache=False)
            output.loss.backward()
        assert way(removed) != "left"
        assert_same_gradients(reference, model, 1e-6 if name.startswith("T5") else 1e-9)
        expected, got = reference(**batch), model(**batch)
        for result in (expected, got):
            result.encoder_last_hidden_state = result.encoder_last_hidden_state[batch["attention_mask"] != 0]
        for (key, value), (_, other) in zip(leaves(expected), leaves(got), strict=True):
            torch.testing.assert_close(other, value, rtol=1e-6, atol=1e-9, msg=key)
        model.eval()
        reference.eval()
        del batch["labels"]
        options = {"max_new_tokens": 5, "num_beams": 2}
        assert torch.equal(model.generate(**batch, **options), reference.generate(**batch, **options))


def assert_trains_the_same(reference, model, batch):
    mask = batch["attention_mask"]
    with remove_padding(model) as removed:
        for module in (reference, model):
            module.train()
            module(**batch).loss.backward()
        assert removed.removed, str(removed)
        expected, got = reference(**batch), model(**batch)
        torch.testing.assert_close(got.loss, expected.loss, rtol=1e-6, atol=0)
        torch.testing.assert_close(got.logits[mask != 0], expected.logits[mask != 0], rtol=1e-6, atol=1e-9)
    assert_same_gradients(reference, model, 1e-6)


IMAGE, START = 3, 4


def vision_language_model():
    text = ENCODER | {"num_key_value_heads": 2, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}}
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_heads": 4, "depth": 2, "out_hidden_size": 32}
    ids = {"image_token_id": IMAGE, "vision_start_token_id": START, "video_token_id": 5, "pad_token_id": 0}
    settings = {"text_config": text, "vision_config": vision | {"fullatt_block_indexes": [1]}, **ids}
    return tiny_of("Qwen2_5_VLForConditionalGeneration", settings)


@pytest.mark.parametrize("positions", [False, True])
def test_vision_language_model(positions):
    """Images lie within rows; positions have three sections, `[3, rows, width]`."""
    reference, model = vision_language_model(), vision_language_model()
    batch = padded_batch(4, 20)
    ids, mask = batch["input_ids"].clamp(min=6).masked_fill(batch["attention_mask"] == 0, 0), batch["attention_mask"]
    mask[1] = torch.arange(20) < 9
    ids[1] = ids[1].masked_fill(mask[1] == 0, 0)
    ids[:2, 1], ids[:2, 2:6] = START, IMAGE
    batch = {"input_ids": ids, "attention_mask": mask, "labels": ids.where((ids > 5) & (mask != 0), -100)}
    generator = torch.Generator().manual_seed(2)
    batch["image_grid_thw"] = torch.tensor([[1, 4, 4]] * 2)
    batch["pixel_values"] = torch.randn(32, 3 * 2 * 14 * 14, generator=generator, dtype=torch.float64)
    kinds = {"mm_token_type_ids": (ids == IMAGE).int()}
    kinds = kinds if "mm_token_type_ids" in inspect.signature(model.model.get_rope_index).parameters else {}
    if positions:
        grid = {"image_grid_thw": batch["image_grid_thw"], "attention_mask": mask}
        batch["position_ids"] = model.model.get_rope_index(ids, **kinds, **grid)[0]
    elif kinds:
        batch |= kinds
    assert_trains_the_same(reference, model, batch)


def llava():
    text = {"model_type": "llama", **DECODER}
    vision = {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    vision |= {"num_hidden_layers": 2, "image_size": 8, "patch_size": 4, "projection_dim": 32}
    ids = {"image_token_id": IMAGE, "image_token_index": IMAGE, "vision_feature_select_strategy": "default"}
    settings = {"text_config": text, "vision_config": vision, **ids, "vision_feature_layer": -1, "pad_token_id": 0}
    return tiny_of("LlavaForConditionalGeneration", settings)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_llava(left):
    """Image features take the places of their tokens in the embeddings, which reach the text model `[rows, width]`."""
    reference, model = llava(), llava()
    batch = padded_batch(4, 16, left=left)
    mask = batch["attention_mask"]
    ids = batch["input_ids"].clamp(min=6).masked_fill(mask == 0, 0)
    ids[0, 5:9] = IMAGE  # four patches, in the row without padding
    batch = {"input_ids": ids, "attention_mask": mask, "labels": ids.where((ids > 5) & (mask != 0), -100)}
    generator = torch.Generator().manual_seed(2)
    batch["pixel_values"] = torch.randn(1, 3, 8, 8, generator=generator, dtype=torch.float64)
    assert_trains_the_same(reference, model, batch)
