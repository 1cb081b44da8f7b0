"""`tokenizer_pad`: the result of `PreTrainedTokenizerBase.pad`, for all its inputs."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
from transformers import BatchEncoding
from transformers.utils import PaddingStrategy
from transformers.utils.generic import to_py_obj

from quadrat import _core
from quadrat.input.rows import Rows, UnevenColumns, is_one_example, plain, rows_of
from quadrat.installed import originals
from quadrat.planning.compared import reference_is_running
from quadrat.planning.conversion import framework_of
from quadrat.planning.diagnosis.values import kind_of
from quadrat.planning.dispatch import Imitator, call
from quadrat.planning.facts import padding_facts
from quadrat.planning.fallback import NO_FEATURES, raise_clearer, reraise_with_hint
from quadrat.planning.padded import Padded, PadOptions, warns_of_fast
from quadrat.planning.pads_by_lists import TOKENIZER_PAD, by_lists, first_value, is_of_luke
from quadrat.support.kinds import Framework
from quadrat.support.tensors import is_tensor

_PYTHON_ROWS = (list, tuple)
_ARRAYS = (np.ndarray, np.memmap)
_MOST_METHODS = 256
_NONE = type(None)
# The types of `PadOptions` of which equal ones mean the same.
_USUAL = frozenset(
    itertools.product((bool, str, PaddingStrategy), (int, _NONE), (int, _NONE), (str, _NONE), (bool, _NONE), (bool,))
)


def tokenizer_pad(  # noqa: PLR0917 - as in transformers
    tokenizer: Any,
    encoded_inputs: Any,
    padding: Any = True,
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    padding_side: str | None = None,
    return_attention_mask: bool | None = None,
    return_tensors: Any = None,
    verbose: bool = True,
) -> BatchEncoding:
    """Pad encoded inputs as `tokenizer.pad` does.

    Result, warnings and changes to `encoded_inputs` are those of the installed transformers. Batches that become
    tensors or arrays are made in compiled code: a list of mappings, and a dict or `BatchEncoding` of columns, whose
    rows are lists, 1-D arrays or 1-D tensors. The tokenizer's own method is called for a single example, for output as
    lists, and if quadrat cannot prove that its result is the same, for example for tokenizers that override padding.

    Args:
        tokenizer: a tokenizer of transformers.
        encoded_inputs: a list of mappings, a mapping of columns, or one example; also the rows of an `ArrowDataset`.
        padding, max_length, pad_to_multiple_of, padding_side, return_attention_mask, return_tensors, verbose: those of
            `tokenizer.pad`. `return_tensors` is by default that of the rows.

    Returns:
        A `BatchEncoding`; for each column that is padded `[rows, width]`.

    Raises:
        ValueError, TypeError, KeyError, ...: as in transformers, with the column, the row and the lengths added.

    Examples:
        >>> import quadrat, tokenizers, transformers
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "the": 1, "cat": 2, "sat": 3}))
        >>> tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
        >>> batch = quadrat.tokenizers.tokenizer_pad(tokenizer, {"input_ids": [[1, 2, 3], [2]]}, return_tensors="pt")
        >>> batch["input_ids"].tolist(), batch["attention_mask"].tolist()
        ([[1, 2, 3], [2, 0, 0]], [[1, 1, 1], [1, 0, 0]])
    """
    method, plain = getattr(type(tokenizer), "pad", None), "pad" not in getattr(tokenizer, "__dict__", ("pad",))
    options = padding, max_length, pad_to_multiple_of, padding_side, return_attention_mask, verbose
    try:
        if plain and originals.is_of(method, originals.PAD):
            return pad_or_fall_back(tokenizer, encoded_inputs, options, return_tensors)
        if plain and is_of_luke(method):
            return _by_reference(method, tokenizer, options, return_tensors, encoded_inputs)
    except Exception as error:
        _explain(error, encoded_inputs, TokenizerPad(lambda: tokenizer, options, return_tensors))
    defaults = PadOptions._field_defaults
    asked = {name: value for name, value in zip(defaults, options, strict=True) if value is not defaults[name]}
    if return_tensors is not None:
        asked["return_tensors"] = return_tensors
    return tokenizer.pad(encoded_inputs, **asked)


def _becomes_lists(encoded_inputs: Any) -> bool:
    """True if the first row is a list or the one example has numbers: without `return_tensors`, lists come out."""
    first = encoded_inputs[0] if type(encoded_inputs) is list and encoded_inputs else encoded_inputs
    data = first.data if type(first) is BatchEncoding else first
    if type(data) is not dict:
        return False
    for value in data.values():
        return type(value) is list and (first is not encoded_inputs or (bool(value) and type(value[0]) in (int, list)))
    return False


def pad_or_fall_back(tokenizer: Any, encoded_inputs: Any, options: tuple[Any, ...], return_tensors: Any) -> Any:
    """The batch, in compiled code if it is known or can be proven; else what the reference makes."""
    # options: the values of `PadOptions`, which few batches need by name.
    if return_tensors is None and _becomes_lists(encoded_inputs):
        padding, length, multiple, side, mask, verbose = options
        return originals.PAD(tokenizer, encoded_inputs, padding, length, multiple, side, mask, None, verbose)
    inputs = None if reference_is_running() else _inputs_of(tokenizer, encoded_inputs, return_tensors)
    if inputs is None or tuple(map(type, options)) not in _USUAL or warns_of_fast(tokenizer):
        return _by_reference(originals.PAD, tokenizer, options, return_tensors, encoded_inputs)
    rows, framework, becomes_python = inputs
    method = _remembered(tokenizer, options, framework, return_tensors is None, becomes_python)
    run = method._recipes(framework)
    outcome = None if run is None else run(method, rows)
    if outcome is None or type(outcome) is tuple:
        return call(method, encoded_inputs, framework, outcome, rows)
    return _with_lists(outcome, encoded_inputs) if becomes_python else outcome


def _by_reference(
    method: Any, tokenizer: Any, options: tuple[Any, ...], return_tensors: Any, encoded_inputs: Any
) -> Any:
    asked = PadOptions(*options)._asdict() | {"return_tensors": return_tensors}
    return by_lists(method, tokenizer, encoded_inputs, asked)


def _with_lists(batch: Any, encoded_inputs: Any) -> Any:
    """The batch; the reference replaces the columns that it was given."""
    for name, value in encoded_inputs.items():
        encoded_inputs[name] = to_py_obj(value)
    return batch


def _explain(error: Exception, encoded_inputs: Any, method: TokenizerPad) -> NoReturn:
    data: Any = encoded_inputs.data if type(encoded_inputs) is BatchEncoding else encoded_inputs
    try:
        try:
            rows = plain(rows_of(data))
        except UnevenColumns as uneven:
            reraise_with_hint(error, str(uneven))
        if rows is data and isinstance(data, Mapping):
            rows = [data]
            for name, value in () if is_one_example(data) else data.items():
                if not isinstance(value, (list, tuple)) and not getattr(value, "ndim", 0):
                    reraise_with_hint(
                        error, f"column '{name}' is {kind_of(value)}; give a list with a value for each row"
                    )
        raise_clearer(error, rows if isinstance(rows, (list, tuple)) and rows else NO_FEATURES, method)
    finally:
        del error  # see `reraise_with_hint`


class TokenizerPad(Imitator):
    """`pad` of a tokenizer with its options, and what is known of earlier batches; the tokenizer is not kept alive."""

    _imitates = TOKENIZER_PAD
    _keeps_tokenizer = False

    def __init__(
        self, tokenizer: Callable[[], Any], options: tuple[Any, ...], return_tensors: Any, becomes_python: bool = False
    ) -> None:
        self._tokenizer, self._options = tokenizer, PadOptions(*options)
        self.return_tensors, self._becomes_python = return_tensors, becomes_python
        self.padding, self.max_length, self.pad_to_multiple_of = options[:3]

    @property
    def tokenizer(self) -> Any:
        """The tokenizer."""
        return self._tokenizer()

    def _look(self, encoded_inputs: Any) -> Any:
        return _inputs_of(self.tokenizer, encoded_inputs, self.return_tensors)[0]  # type: ignore[index]

    def _plan(self, rows: Any, framework: Any) -> Any:
        return Padded.of(self, framework, self._options, facts=padding_facts(self)).make(self, rows)

    def _finish(self, batch: Any, encoded_inputs: Any) -> Any:
        return _with_lists(batch, encoded_inputs) if self._becomes_python else batch

    def _reference(self, framework: Any) -> Callable[[Any], Any]:
        return functools.partial(_by_reference, originals.PAD, self.tokenizer, self._options, self.return_tensors)


# By the identity of the tokenizer, its class, options, framework, and how rows are given.
_known: dict[Any, TokenizerPad] = {}


def _remembered(
    tokenizer: Any, options: tuple[Any, ...], framework: Framework, infers: bool, becomes_python: bool
) -> TokenizerPad:
    """infers: whether the framework is that of the rows."""
    key = id(tokenizer), type(tokenizer), options, framework, infers, becomes_python
    method = _known.get(key)
    if method is None or method._tokenizer() is not tokenizer:
        while len(_known) >= _MOST_METHODS and (oldest := next(iter(list(_known)), None)) is not None:
            _known.pop(oldest, None)
        reference = weakref.ref(tokenizer, functools.partial(_forget, key))
        method = _known[key] = TokenizerPad(reference, options, None if infers else framework, becomes_python)
    return method


def _forget(key: Any, reference: weakref.ref[Any]) -> None:
    if (method := _known.get(key)) is not None and method._tokenizer is reference:
        _known.pop(key, None)


def _inputs_of(tokenizer: Any, encoded_inputs: Any, return_tensors: Any) -> tuple[Any, Framework, bool] | None:
    """A list of mappings or `Rows`, the framework, and whether the reference makes Python objects of given columns.

    None for one example, for lists and for what is not known.
    """
    try:
        main = tokenizer.model_input_names[0]
    except Exception:  # the reference fails in its own way
        return None
    data = encoded_inputs.data if type(encoded_inputs) is BatchEncoding else encoded_inputs
    if type(data) is not dict:
        if type(data) not in (*_PYTHON_ROWS, Rows) or len(data) == 0:
            return None
        framework = _kind(first_value(data, main)) if return_tensors is None else framework_of(return_tensors)
        return None if framework is None else (data, framework, False)
    return _inputs_of_columns(data, data.get(main), return_tensors)


def _inputs_of_columns(data: Any, rows: Any, return_tensors: Any) -> tuple[Any, Framework, bool] | None:
    in_memory = is_tensor(rows) or type(rows) in _ARRAYS
    if (in_memory and (rows.ndim != 2 or len(rows) == 0)) or not (in_memory or (type(rows) in _PYTHON_ROWS and rows)):
        return None
    first = rows[0]
    python = type(first) in _PYTHON_ROWS
    framework = _kind(first) if return_tensors is None else framework_of(return_tensors)
    if framework is None or not (python or _kind(first)):
        return None
    try:
        features = _rows_of(data, arrays=not python)
    except Exception:  # tensors of another layout, say
        return None
    return None if features is None else (features, framework, not python)


def _kind(row: Any) -> Framework | None:
    """The framework of a batch whose first row this is; None for lists."""
    return "pt" if is_tensor(row) else "np" if isinstance(row, np.ndarray) else None


def _rows_of(columns: dict[str, Any], *, arrays: bool) -> Rows | None:
    """Columns with rows as the reference reads them, of Python objects where there are arrays; None without rows."""
    lists: list[Any] = []
    for value in columns.values():
        if type(value) in _PYTHON_ROWS:
            lists.append(value)
        elif type(value) in _ARRAYS and value.ndim > 0:
            lists.append(value.tolist() if arrays and value.ndim == 1 else list(value))
        elif is_tensor(value) and value.ndim > 0 and not value.is_nested:
            lists.append(list(value.unbind()))
        else:
            return None
    if len({len(column) for column in lists}) != 1:
        return None
    return Rows(_core.Table(tuple(columns), lists))
