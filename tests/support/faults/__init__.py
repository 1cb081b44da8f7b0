"""Faults that are injected while batches are made, and what becomes of the batches: `make faults`.

Each fault is a function that injects it many times, checks what is left after each, and yields rows of the table.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        fault: what went wrong, and where.
        injected: how many times.
        outcome: what came of it, in words.
    """

    fault: str
    injected: int
    outcome: str

    def __str__(self) -> str:
        return f"{self.fault:64}{self.injected:>9,}  {self.outcome}"


HEADING = f"{'fault':64}{'injected':>9}  outcome"
