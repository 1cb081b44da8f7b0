"""Which lines of functions ran while batches were compared, and which others raise errors or serve other frameworks."""

import ast
import functools
import linecache
import os
import re
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

_OTHER_FRAMEWORK = re.compile(r"(?<![a-z])(tf|tensorflow|jax|flax|mlx)(?![a-z])", re.IGNORECASE)
_ENDS = ast.Return, ast.Yield, ast.Continue, ast.Break  # of a block, besides an error
# Lines of tested versions that no call of what quadrat replaces runs, by function.
_NEVER: dict[str, tuple[str, ...]] = {
    "pad_without_fast_tokenizer_warning": ("return tokenizer.pad(*pad_args, **pad_kwargs)",),
    "DataCollatorForLanguageModeling.__post_init__": ("self.mask_replace_prob = 1", "self.random_replace_prob = 0"),
    "PreTrainedTokenizerBase.pad": ('batch_outputs["attention_mask"] = np.array(preserved_attention_mask)',),
    "PreTrainedTokenizerBase._get_padding_truncation_strategies": (  # of texts that are truncated
        *("truncation_strategy = (", "TruncationStrategy.LONGEST_FIRST", "truncation_strategy = truncation"),
        *("elif isinstance(truncation, TruncationStrategy):", "max_length = self.model_max_length"),
        *("if self.model_max_length > LARGE_INTEGER:", "and pad_to_multiple_of is not None", "if verbose:"),
        *("and max_length is not None", "and (max_length % pad_to_multiple_of != 0)", "logger.warning("),
        "truncation_strategy = TruncationStrategy.DO_NOT_TRUNCATE",
        'if not self.deprecation_warnings.get("Asking-to-truncate-to-max_length", False):',
        '"Asking to truncate to max_length but no maximum length is provided and the model has"',
        'self.deprecation_warnings["Asking-to-truncate-to-max_length"] = True',
    ),
    "SequenceFeatureExtractor._pad": ("max_length = len(required_input)",),
    "BatchFeature.convert_to_tensors": ("return self", "continue"),
    "BatchFeature._get_is_as_tensor_fns": (
        *("return None, None", "return value", "return torch.stack(value)", "value = np.array(value)"),
        *("and len(value[0]) > 0", "and isinstance(value[0][0], np.ndarray)"),
    ),
}


class Line(NamedTuple):
    """The first line of a statement, or of a part of it."""

    file: str
    number: int
    function: str

    @property
    def text(self) -> str:
        """The text of the line."""
        return linecache.getline(self.file, self.number).strip()

    @property
    def is_excused(self) -> bool:
        """True if its batches fall back anyway: it raises an error, is for another framework, or for no call here."""
        return self.number in _excused(self.file) or self.text in _NEVER.get(self.function, ())

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.number}, {self.function}: {self.text}"


class Reached:
    """Records the lines of functions that run in a `with` block of this thread; it may be entered again."""

    def __init__(self, functions: Iterable[FunctionType]) -> None:
        codes = (code for function in functions for code in _codes(function.__code__))
        self._lines: dict[CodeType, set[int]] = {code: set() for code in codes}
        self._before: Any = None

    def __enter__(self) -> None:
        if self._lines:
            self._before = sys.gettrace()
            sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        if self._lines:
            sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self._lines[frame.f_code].add(frame.f_lineno)
        return self._trace if frame.f_code in self._lines else None

    def missed(self, function: FunctionType) -> Iterator[Line]:
        """The lines of a function that did not run, some of which are excused."""
        file, codes = function.__code__.co_filename, list(_codes(function.__code__))
        ran = {line for code in codes for line in self._lines[code]}
        # A line of code that is no part of a function's body: its `def`, and its decorators.
        heads = {code.co_firstlineno for code in codes} - ran
        lines = {line for code in codes for *_, line in code.co_lines() if line} - ran - heads
        for number in sorted(lines):
            yield Line(file, number, function.__qualname__)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@functools.cache
def _excused(file: str) -> frozenset[int]:
    """The lines of blocks that only `raise` ends, or that only another framework than torch and NumPy runs."""
    found: set[int] = set()

    def walk(block: list[Any], excused: bool) -> None:
        ends = (isinstance(one, _ENDS) for node in block for one in ast.walk(node))
        excused = excused or (isinstance(block[-1], ast.Raise) and not any(ends))
        for node in block:
            if isinstance(node, ast.Assert) and node.msg is not None:
                found.update(range(node.msg.lineno, (node.msg.end_lineno or 0) + 1))
            if excused or isinstance(node, ast.Raise):
                found.update(range(node.lineno, node.end_lineno + 1))
            other = isinstance(node, ast.FunctionDef) and _OTHER_FRAMEWORK.search(node.name)
            other = other or (isinstance(node, ast.If) and _OTHER_FRAMEWORK.search(ast.unparse(node.test)))
            for name in ("body", "orelse", "finalbody"):
                if part := getattr(node, name, None):
                    walk(part, excused or (name == "body" and bool(other)))
            for handler in getattr(node, "handlers", ()):
                walk(handler.body, excused)

    walk(ast.parse("".join(linecache.getlines(file))).body, excused=False)
    return frozenset(found)
