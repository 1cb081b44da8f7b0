"""How often masking does what, over many tokens: an error that the compiled code shared with its oracle would show.

Chi-square tests with fixed seeds, so that they fail always or never. A right masking would fail one in 10,000.
"""

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import quadrat
from support.masking import MASK_VOCABULARY, make_masking_tokenizer

LEVEL = 1e-4
ROWS, WIDTH, CALLS = 16, 256, 200
POSITIONS, TOKENS = ROWS * WIDTH, ROWS * WIDTH * CALLS
ID = 50
MASK_ID = MASK_VOCABULARY["[MASK]"]


def critical(freedom: int) -> float:
    """What chi-square with so many degrees of freedom exceeds at LEVEL (Wilson and Hilferty, 1931).

    A little above the exact value for few degrees: 16.2 for 15.1 at 1, 19.3 for 18.4 at 2.
    """
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + NormalDist().inv_cdf(1 - LEVEL) * spread**0.5) ** 3)


def chi_square(observed: Any, probabilities: Any) -> float:
    """The distance of counts from what these probabilities of all outcomes let expect."""
    observed, probabilities = np.asarray(observed, float), np.asarray(probabilities, float)
    assert abs(probabilities.sum() - 1) < 1e-9
    expected = observed.sum() * probabilities
    assert expected.min() > 5, "too few for a chi-square test"
    return float(((observed - expected) ** 2 / expected).sum())


def masked_batches(framework: str, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Ids and labels of many batches, `[CALLS, POSITIONS]`; all ids are the same before.

    framework: "philox" for counter-based draws, by row number and epoch; their first epochs.
    """
    if framework == "philox":
        options = {**options, "rng": "philox", "row_key": "row"}
    collator = quadrat.DataCollatorForLanguageModeling(
        make_masking_tokenizer(), return_tensors="np" if framework == "philox" else framework, seed=7, **options
    )
    features = [{"input_ids": [ID] * WIDTH, "row": row} for row in range(ROWS)]
    batches = []
    for epoch in range(CALLS):
        if framework == "philox":
            collator.set_epoch(epoch)
        batches.append(collator(features))
    ids, labels = (np.stack([np.asarray(batch[name]) for batch in batches]) for name in ("input_ids", "labels"))
    return ids.reshape(CALLS, POSITIONS), labels.reshape(CALLS, POSITIONS)


@pytest.mark.parametrize("framework", ["pt", "np", "philox"])
@pytest.mark.parametrize(
    ("p", "mask", "random"), [(0.15, 0.8, 0.1), (0.3, 0.5, 0.3)], ids=["the usual probabilities", "others"]
)
def test_frequencies(framework: str, p: float, mask: float, random: float) -> None:
    options = {"mlm_probability": p, "mask_replace_prob": mask, "random_replace_prob": random}
    ids, labels = masked_batches(framework, options)
    masked = labels != -100
    assert bool((labels[masked] == ID).all())
    assert bool((ids[~masked] == ID).all())

    count = int(masked.sum())
    assert chi_square([count, TOKENS - count], [p, 1 - p]) < critical(1)

    # A random token may be the mask, or the token that was there.
    became = np.bincount(ids[masked], minlength=len(MASK_VOCABULARY))
    assert len(became) == len(MASK_VOCABULARY)
    share = random / len(MASK_VOCABULARY)
    others = np.delete(became, [MASK_ID, ID])
    kept, rest = 1 - mask - random + share, share * len(others)
    assert chi_square([became[MASK_ID], became[ID], others.sum()], [mask + share, kept, rest]) < critical(2)
    assert chi_square(others, np.full(len(others), 1 / len(others))) < critical(len(others) - 1)


@pytest.mark.parametrize("framework", ["pt", "np", "philox"])
def test_positions(framework: str) -> None:
    """Each position of a batch is masked, and replaced, as often as any other."""
    ids, labels = masked_batches(framework, {"mlm_probability": 0.3})
    masked, replaced = labels != -100, ids == MASK_ID
    even = np.full(POSITIONS, 1 / POSITIONS)
    # Given how many of CALLS trials a position has, counts spread less than independent ones, by 1 - p.
    for chosen in (masked, replaced, masked & ~replaced):
        p = chosen.mean()
        assert chi_square(chosen.sum(axis=0), even) / (1 - p) < critical(POSITIONS - 1)


@pytest.mark.parametrize("framework", ["pt", "np", "philox"])
def test_neighbours_and_batches_do_not_depend_on_each_other(framework: str) -> None:
    """Pairs of tokens, in a batch and from one batch to the next, are masked as independent ones are."""
    p = 0.3
    _, labels = masked_batches(framework, {"mlm_probability": p})
    masked = (labels != -100).astype(int)
    both = [(1 - p) ** 2, p * (1 - p), p * (1 - p), p**2]
    for first, second in ((masked[:, ::2], masked[:, 1::2]), (masked[::2], masked[1::2])):
        pairs = np.bincount((2 * first + second).reshape(-1), minlength=4)
        assert chi_square(pairs, both) < critical(3)


@pytest.mark.parametrize("framework", ["pt", "np", "philox"])
def test_it_would_show(framework: str) -> None:
    """The tests above can fail: masking at 0.155 is not masking at 0.15, and a token that is never drawn is missed."""
    _, labels = masked_batches(framework, {"mlm_probability": 0.155})
    count = int((labels != -100).sum())
    assert chi_square([count, TOKENS - count], [0.15, 0.85]) > critical(1)
    generator, even = np.random.default_rng(7), np.full(400, 1 / 400)
    for high, shows in ((399, True), (400, False)):  # as many as random tokens in `test_frequencies`
        drawn = np.bincount(generator.integers(0, high, size=int(TOKENS * 0.3 * 0.3)), minlength=400)
        assert (chi_square(drawn, even) > critical(399)) == shows
