"""Inputs: byte strings, new ones and changed ones, and the files that keep them."""

import hashlib
import random
from collections import defaultdict
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
_MOST = 4096
_INTERESTING = (0, 1, 2, 7, 8, 15, 16, 127, 128, 254, 255)


def read(path: Path) -> list[tuple[str, bytes]]:
    """(target, input) of each line of a file; lines that begin with # say more."""
    lines = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [(target, bytes.fromhex("".join(rest))) for target, *rest in lines]


def corpus(folder: Path = CORPUS) -> dict[str, list[bytes]]:
    kept = defaultdict(list)
    for path in sorted(folder.glob("*.txt")):
        for target, data in read(path):
            kept[target].append(data)
    return dict(kept)


def write(folder: Path, target: str, data: bytes, comment: str) -> Path:
    """Keep an input that was found, and what is known of it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(target.encode() + data).hexdigest()[:12]}.txt"
    path.write_text("".join(f"# {line}\n" for line in comment.splitlines()) + f"{target} {data.hex()}\n")
    return path


def new(random: random.Random, kept: list[bytes]) -> bytes:
    """Bytes at random, many or few, or those that are kept with some changes."""
    if not kept or random.random() < 0.6:
        return random.randbytes(int(2 ** random.uniform(2, 11)))
    data = bytearray(random.choice(kept))
    for _ in range(int(2 ** random.uniform(0, 4))):
        _change(random, data, kept)
    return bytes(data[:_MOST])


def _change(random: random.Random, data: bytearray, kept: list[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    what = random.randrange(7)
    if what == 0 and at < len(data):
        data[at] ^= 1 << random.randrange(8)
    elif what == 1 and at < len(data):
        data[at] = random.choice(_INTERESTING)
    elif what == 2 and at < len(data):
        data[at] = random.randrange(256)
    elif what == 3:
        data[at:at] = random.randbytes(random.randrange(1, 9))
    elif what == 4:
        del data[at : at + random.randrange(1, 9)]
    elif what == 5:
        data[at:] = random.choice(kept)[at:]
    else:
        data[at:] = random.randbytes(random.randrange(200))
