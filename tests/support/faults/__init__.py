"""Faults that are injected while batches are made, and what becomes of the batches: `make faults`.

Each fault is a function that injects it many times, checks what is left after each, and yields rows of the table.
"""

HEADING = f"{'fault':64}{'injected':>9}  outcome"


def row(fault: str, injected: int, outcome: str) -> str:
    """A row of the table: what went wrong, and where; how many times; what came of it."""
    return f"{fault:64}{injected:>9,}  {outcome}"
