"""Ten generation batches of TRL's GRPO and RLOO, whose micro-batches are as TRL makes them, cut, and by length and cut.

A small random Qwen2 trains on given completions of lognormal lengths, 4 rows in each of 8 micro-batches. Losses and
norms of gradients must be those of TRL. The time of a generation batch is that of everything but its generation.
"""

import math
import tempfile
import time
from functools import partial
from types import MethodType
from typing import Any

import datasets
import numpy as np
import torch
import trl
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed

import quadrat
from benchmarks.measure import Case, Cases, Sample, own
from benchmarks.processes import apart

LONGEST, VOCABULARY, EOS = 512, 1000, 2
QUIET = {"report_to": "none", "save_strategy": "no", "use_cpu": True, "bf16": False, "disable_tqdm": True}
WAYS = ("TRL", "cut", "quadrat")


def tokenizer() -> Any:
    words = Tokenizer(models.WordLevel({f"w{one}": one for one in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w1", eos_token="w2")


def model(hidden: int, seed: int) -> Any:
    set_seed(seed)
    sizes = {"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": 4, "num_attention_heads": 4}
    tokens = {"vocab_size": VOCABULARY, "pad_token_id": 1, "eos_token_id": EOS, "bos_token_id": EOS}
    return Qwen2ForCausalLM(Qwen2Config(num_key_value_heads=4, max_position_embeddings=2048, **sizes, **tokens))


def trained(way: str, name: str, hidden: int, steps: int, options: dict[str, Any]) -> tuple[Sample, list[float]]:
    """A training in this process: time and tokens of a generation batch; the losses and the norms of gradients."""
    torch.set_num_threads(1)
    draw, folder = np.random.default_rng(0), tempfile.mkdtemp()
    given = {"max_steps": steps, "logging_steps": 1, "max_completion_length": LONGEST, **QUIET, **options}
    policy, rows = model(hidden, 0), 4 * steps * given["gradient_accumulation_steps"]
    model(hidden, 1).save_pretrained(folder)
    policy.config._name_or_path = folder  # of the reference model
    prompts = [" ".join(f"w{one}" for one in draw.integers(3, VOCABULARY, n)) for n in draw.integers(10, 40, rows)]
    dataset = datasets.Dataset.from_dict({"prompt": prompts})
    score = lambda completions, **_: [len(one) % 97 / 10 for one in completions]  # noqa: E731
    others = {"args": getattr(trl, f"{name}Config")(folder, **given), "processing_class": tokenizer()}
    trainer = getattr(trl, f"{name}Trainer")(policy, score, train_dataset=dataset, **others)
    passes, computed = type(policy.model).forward, [0]

    def completions(self: Any, prompt_ids: Any, *_: Any) -> Any:
        lengths = np.minimum(draw.lognormal(math.log(30), 0.8, len(prompt_ids)).astype(int) + 1, LONGEST)
        made = [[*draw.integers(3, VOCABULARY, n - 1).tolist(), EOS] for n in lengths]
        return (made, None) if name == "GRPO" else made

    def counted(self: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        computed[0] += input_ids.numel()
        return passes(self, input_ids, *args, **kwargs)

    trainer._generate_single_turn = MethodType(completions, trainer)
    for one in filter(None, (policy, trainer.ref_model)):
        one.model.forward = MethodType(counted, one.model)
    if way != "TRL":
        (quadrat.trl.trim if way == "cut" else quadrat.batch_by_tokens)(trainer)
    began, used = time.perf_counter_ns(), time.process_time_ns()
    trainer.train()
    times = {"ns": (time.perf_counter_ns() - began) / steps, "cpu_ns": (time.process_time_ns() - used) / steps}
    found = [entry[name] for entry in trainer.state.log_history for name in ("loss", "grad_norm") if name in entry]
    return {**times, "computed": computed[0] / steps}, found


def online(name: str, hidden: int, steps: int, size: int, accumulated: int, **options: Any) -> Case:
    given = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated, **options}

    def check() -> None:
        expected, *found = (apart(trained, way, name, hidden, steps, given, start="fork")[1] for way in WAYS)
        np.testing.assert_allclose(found, [expected] * 2, rtol=1e-5, atol=3e-5)  # losses are about 0

    ways = {way: lambda way=way: apart(trained, way, name, hidden, steps, given, start="fork")[0] for way in WAYS}
    facts = {"rows": size * accumulated, "micro_batches": accumulated}
    return Case(ways, facts, base="TRL", check=check, stopwatch=own, rounds=1)  # of minutes


def cases(*, quick: bool) -> Cases:
    hidden, steps = (16, 2) if quick else (64, 10)
    make = partial(partial, online, hidden=hidden, steps=steps)
    alone = {"size": 1, "accumulated": 1, "steps_per_generation": 2, "num_generations": 2}
    several = {"size": 4, "accumulated": 8, "num_generations": 8}
    return {
        "GRPO, 8 micro-batches of 4 rows": make("GRPO", **several),
        "RLOO with a reference, 8 micro-batches of 4 rows": make("RLOO", **several),
        "GRPO, one row in a step": make("GRPO", **alone),
    }
