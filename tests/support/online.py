"""Online trainers of TRL, of tiny models; their completions are given."""

import random
import types
from typing import Any

import datasets
import numpy as np
import torch
import trl
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed

WORDS = [f"w{number}" for number in range(60)]
LONGEST = 40
PAD, EOS = 1, 2
QUIET = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "bf16": False}


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(["<unk>", "<pad>", "<eos>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>")


def policy(kind: str = "Qwen2", seed: int = 0, **options: Any) -> Any:
    set_seed(seed)
    tokens = {"vocab_size": 64, "pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": EOS}
    if kind == "GPT-2":
        without = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        return GPT2LMHeadModel(GPT2Config(n_positions=128, n_embd=16, n_layer=2, n_head=2, **tokens, **without))
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return Qwen2ForCausalLM(Qwen2Config(num_key_value_heads=2, **sizes, **tokens, **options))


def prompts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(2, 12))) for _ in range(count)]


def reward(completions: Any, **_: Any) -> list[float]:
    return [len(one) % 7 + one.count("w1") / 2 for one in completions]


def trainer_of(
    name: str,
    folder: Any,
    *,
    kind: str = "Qwen2",
    model: Any = None,
    base: Any = None,
    tools: bool = False,
    **options: Any,
) -> Any:
    """A GRPOTrainer or RLOOTrainer of 4 micro-batches of 2 rows. tools: parts of completions are not the model's."""
    steps = {"max_steps": 4, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "num_generations": 2}
    rate = {"optim": "sgd", "learning_rate": 0.01, "lr_scheduler_type": "constant", "max_grad_norm": 1e9}
    given = {"beta": 0.0, "max_completion_length": LONGEST, "logging_steps": 1, "dataloader_pin_memory": False}
    args = getattr(trl, f"{name}Config")(str(folder), **{**QUIET, **steps, **rate, **given, **options})
    model = policy(kind) if model is None else model
    if args.beta:
        policy(kind, 1).save_pretrained(folder)
        model.config._name_or_path = str(folder)
    more = {"rollout_func": _with_tools} if tools else {}
    cls = getattr(trl, f"{name}Trainer") if base is None else base
    rows = datasets.Dataset.from_dict({"prompt": prompts(32)})
    trainer = cls(model, reward, args=args, train_dataset=rows, processing_class=tokenizer(), **more)
    trainer.drawn = np.random.default_rng(args.process_index)

    def given_completions(self: Any, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        made = completions(self.drawn, len(prompt_ids))
        return (made, None) if name == "GRPO" else made

    trainer._generate_single_turn = types.MethodType(given_completions, trainer)
    return trainer


def completions(draw: np.random.Generator, count: int) -> list[list[int]]:
    """Of lognormal lengths; those that are cut at the longest do not end."""
    lengths = np.minimum(draw.lognormal(2.2, 0.8, count).astype(int) + 1, LONGEST)
    return [[*draw.integers(3, 60, n - 1).tolist(), EOS if n < LONGEST else 5] for n in lengths]


def _with_tools(prompts: Any, trainer: Any) -> dict[str, Any]:
    ids = trainer.processing_class(prompts)["input_ids"]
    made = completions(trainer.drawn, len(prompts))
    masks = [[int(place % 5 != 3) for place in range(len(one))] for one in made]
    return {"prompt_ids": ids, "completion_ids": made, "logprobs": None, "env_mask": masks}


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in trainer.model.named_parameters()}


def difference(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    """The largest difference of two sets of weights."""
    return max(float((one[name] - two[name]).abs().max()) for name in one)
