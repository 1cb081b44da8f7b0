"""Uses an installed wheel beside torch and transformers: the same masked batches as transformers' own."""

import random

import torch
from tokenizers import Tokenizer, models
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

import quadrat

WORDS = ["[PAD]", "[UNK]", "[MASK]", *"abcdefgh"]
made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]")
draw = random.Random(0)
rows = [{"input_ids": [draw.randrange(3, 11) for _ in range(draw.randrange(1, 200))]} for _ in range(64)]
batches = []
for kind in (DataCollatorForLanguageModeling, quadrat.DataCollatorForLanguageModeling):
    torch.manual_seed(0)
    batches.append(kind(tokenizer)([dict(row) for row in rows]))
reference, own = batches
assert list(reference) == list(own)
assert all(torch.equal(reference[name], own[name]) for name in reference)
print(f"the same batch as transformers' with torch {torch.__version__}")
