"""The state that the hooks of models keep for each thread."""

import threading
from typing import Any


class ThreadState(threading.local):
    """The calls of a thread, and whose tokens they compute."""

    rows: Any = None  # those of the flat batch that a model computes now
    rows_of_tokens: Any = None  # those of the padded batch that a model computes token by token, where it can

    def __init__(self) -> None:
        self.calls: list[Any] = []  # one, and within a proof two
        self.called: list[Any] = []  # models whose hooks have run, and whose `forward` follows


THREAD = ThreadState()
