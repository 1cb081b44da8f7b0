"""What happens in the middle of a call of quadrat's: an exception, or a call from a signal handler."""

import dis
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import quadrat

PACKAGE = str(Path(quadrat.__file__).parent)
# After these the interpreter runs signal handlers, and nowhere else since Python 3.10.
_RESUMES = {"RESUME", "JUMP_BACKWARD"}


class Moments:
    """Runs a call, and at its n-th moment something else.

    A moment is before an instruction of quadrat's Python code where the interpreter runs signal handlers.
    """

    def __init__(self, happens: Callable[[], Any]) -> None:
        self._happens = happens
        self._left = -1
        self._passed = 0
        self._last: dict[FrameType, str] = {}

    def run(self, call: Callable[[], Any], moment: int) -> bool:
        """Whether the call took as long. Raises what `happens` does, and what the call does."""
        self._left, self._passed, self._last = moment, 0, {}
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call()
        finally:
            sys.settrace(before)
        return self._left < 0

    def count(self, call: Callable[[], Any]) -> int:
        """The moments of a call."""
        self.run(call, sys.maxsize)
        return self._passed

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode" and self._is_moment(frame):
            self._passed += 1
            self._left -= 1
            if self._left == -1:
                self._happens()
        return self._trace

    def _is_moment(self, frame: FrameType) -> bool:
        last = self._last.get(frame, "")
        self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        return last.startswith("CALL") or last in _RESUMES
