"""Oracles of kernels that draw random numbers."""

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def mask_tokens(
    ids: Array,
    words: Array,
    drawn: tuple[Array, Array, Array, Array],
    mask_id: int,
    labels: Array,
) -> None:
    """Mask `ids`, `[rows, width]`, in place, and write those masked to `labels`, -100 elsewhere.

    `words` is what `word_starts` writes. `drawn` has four numbers for each token: whether the word that it begins is
    masked; if so, whether it becomes `mask_id`; if not that, whether it becomes a random token; and which.
    """
    begun, replaced, randomised, random_tokens = drawn
    for row in range(len(ids)):
        word_is_masked = False
        for i in range(ids.shape[1]):
            if words[row, i] == 1:
                word_is_masked = bool(begun[row, i])
            masked = word_is_masked and words[row, i] != 2
            labels[row, i] = ids[row, i] if masked else -100
            if masked and replaced[row, i]:
                ids[row, i] = mask_id
            elif masked and randomised[row, i]:
                ids[row, i] = random_tokens[row, i]


def _philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Four words of Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011), from the definition."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & 0xFFFFFFFF, first >> 32 ^ c[3] ^ k[1], first & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def row_keys(rows: Sequence[Array], out: Array) -> None:
    """Write the key of each row of tokens to `out`: the sum of its length and its tokens, each mixed with its place."""
    mask = 2**64 - 1
    for row, tokens in enumerate(rows):
        key = 0
        for place, number in enumerate([len(tokens), *map(int, tokens)]):
            z = (number + place * 0x9E3779B97F4A7C15) & mask
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
            z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
            key += z ^ z >> 31
        out[row] = key & mask


def philox_mask(
    ids: Array,
    words: Array,
    labels: Array,
    *,
    seed: int,
    epoch: int,
    row_key: int,
    probabilities: tuple[float, float, float],
    mask_id: int,
    vocab_size: int,
) -> None:
    """Mask the `ids` of one row in place, and write those masked to `labels`, -100 elsewhere.

    `words` is what `word_starts` writes. `probabilities`: of a token to be masked; of a masked one to become `mask_id`;
    and to become a random token. A token's draw, and its random token, depend on seed, epoch, row key and position.
    """

    def words_at(first: int) -> list[int]:
        return _philox([first, epoch, row_key % 2**32, row_key >> 32], [seed % 2**32, seed >> 32])

    p, replaced, randomised = probabilities
    word_is_masked = False
    for i, word in enumerate(words):
        group, place = divmod(i, 32)
        draw = words_at(8 * group + place % 8)[place // 8] >> 1
        share = p if word == 1 else 1.0  # of the draws, that lead to a masked token
        if word == 1:
            word_is_masked = draw < _bar(p)
        labels[i] = ids[i] if word_is_masked and word != 2 else -100
        if not word_is_masked or word == 2:
            continue
        if draw < _bar(share * replaced):
            ids[i] = mask_id
        elif draw < _bar(share * (replaced + randomised)):
            low, high, *_ = words_at(2**31 + i)
            ids[i] = (high * 2**32 + low) * vocab_size >> 64


def _bar(probability: float) -> int:
    return min(int(probability * 2**31 + 0.5), 2**31)


def permutation_mask(
    spans: Sequence[Sequence[tuple[int, int]]],
    order: Array,
    functional: Array,
    *,
    mask_id: int,
    ids: Array,
    labels: Array,
    perm_mask: Array,
    target_mapping: Array,
) -> None:
    """Mask `ids`, `[rows, width]`, in the spans (start, length) of each row, but for functional tokens.

    `order`, `[rows, width / 2]`, permutes either half of a row. Masked ids go to `labels`, -100 elsewhere.
    `perm_mask[row, a, b]` is 1 where token a may not see b: b is masked, and a does not come later in the order; tokens
    that are neither masked nor functional come before all. `target_mapping[row]` is the identity.
    """
    rows, width = ids.shape
    labels[:], perm_mask[:], target_mapping[:] = -100, 0, 0
    for row in range(rows):
        inside = [any(start <= at < start + length for start, length in spans[row]) for at in range(width)]
        masked = [inside[at] and not functional[row, at] for at in range(width)]
        place = [*order[row], *(order[row] + width // 2)]
        for at in range(width):
            if masked[at]:
                labels[row, at], ids[row, at] = ids[row, at], mask_id
            elif not functional[row, at]:
                place[at] = -1
            target_mapping[row, at, at] = 1
        for a in range(width):
            for b in range(width):
                perm_mask[row, a, b] = 1 if masked[b] and place[a] <= place[b] else 0


def choose_words(
    rows: Sequence[Sequence[str]],
    joined: Sequence[Sequence[int]],
    probability: float,
    permutation: Callable[[int], Sequence[int]],
) -> list[list[int]]:
    """The positions in each row of tokens that whole-word masking chooses, rising.

    "##..." and the positions in `joined` continue the word before them; "[CLS]" and "[SEP]" are no words.
    `permutation(n)` draws the order in which n words are tried; a word is taken if it fits what is left of the share.
    """
    chosen = []
    for tokens, positions in zip(rows, joined, strict=True):
        words: list[list[int]] = []
        for position, token in enumerate(tokens):
            if position in positions or token.startswith("##"):
                words[-1:] = [[*words[-1], position]] if words else [[position]]
            elif token not in ("[CLS]", "[SEP]"):
                words.append([position])
        left = min(512, max(1, round(len(tokens) * probability)))
        taken: list[int] = []
        for word in permutation(len(words)):
            if len(words[word]) <= left:
                left -= len(words[word])
                taken += words[word]
        chosen.append(sorted(taken))
    return chosen


def philox_order(seed: int, epoch: int, stream: int, rows: int) -> list[int]:
    """0 ... rows - 1 in random order: each place in turn changes with a random one that is not before it."""
    order = list(range(rows))
    for i in range(rows):
        block, place = divmod(i, 64)
        pair, counter = divmod(place, 32)
        words = _philox([32 * block + counter, epoch, stream, 0x6F726472], [seed % 2**32, seed >> 32])
        draw = words[2 * pair + 1] * 2**32 + words[2 * pair]
        other = i + (draw * (rows - i) >> 64)
        order[i], order[other] = order[other], order[i]
    return order
