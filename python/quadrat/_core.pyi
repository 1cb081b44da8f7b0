from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

# Code, row and position; None where all went well.
_Failure = tuple[int, int, int] | None
_Ints = NDArray[np.int64]
_Span = tuple[int, int]  # an address, and how many numbers there are

__version__: str
kinds: tuple[str, ...]

# Numbers that are defined in C++, see csrc/bindings/functions/constants.cpp.
class _Numbers:
    def __getattr__(self, name: str) -> int: ...

FORMS: _Numbers
LENGTHS: _Numbers
TRAITS: _Numbers
ACTIONS: _Numbers
FACTS: _Numbers
WAYS: _Numbers
GENERATOR_TYPES: _Numbers
WORD_PIECES: _Numbers
CODES: _Numbers
WORD_FORMATS: _Numbers
WORDS: _Numbers
FITS: _Numbers
FLAT_CONTENTS: _Numbers
MOST_TOKENS: int
MOST_BUDGET: int
MOST_COLUMNS: int
MASK_SEGMENT: int
MOST_IN_PACK: int
ALIGNMENT: int
MOST_IN_MESSAGE: int

def explain(failure: tuple[int, int, int]) -> str: ...
def simd_level() -> str: ...
def compiler() -> str: ...
def address(array: Any) -> int: ...
def allocate(interop: Interop, torch: bool, shape: Sequence[int], kind: int) -> tuple[Any, int]: ...
def allocate_batch(
    interop: Interop, torch: bool, outputs: Sequence[tuple[Sequence[int], int]]
) -> list[tuple[Any, int]]: ...
def populate(address: int, size: int) -> bool: ...
def cached_bytes() -> int: ...
def trim() -> None: ...

class Interop:
    def __init__(self, libraries: Any) -> None: ...
    may_be_worker: bool
    def learn_tensor(self, tensor: Any, implementation: int, storage: int) -> None: ...
    @property
    def knows_tensors(self) -> bool: ...
    @property
    def has_exchange(self) -> bool: ...

class Columns:
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add_values(self, values: list[Any] | tuple[Any, ...], interop: Interop) -> None: ...
    def add_ragged(
        self, values: int, kind: int, values_size: int, offsets: int, count: int, trailing: Sequence[int] = ()
    ) -> None: ...
    def cut(self, index: int, starts: int, lengths: int) -> None: ...
    def count(self, index: int) -> int: ...
    def describe(self, index: int) -> tuple[int, int, int, int, int, int]: ...
    def trailing(self, index: int) -> tuple[int, ...]: ...
    def first_difference(self, a: int, b: int) -> int: ...
    def signature(self, main: int, width: int) -> bytes: ...
    def run(
        self,
        steps: tuple[tuple[str, int, int, int], ...],
        values: dict[str, Any],
        interop: Interop,
        torch: bool,
        layout: tuple[Any, ...],
    ) -> Any: ...
    def pad(self, index: int, out: int, kind: int, width: int, left: bool, value: object) -> _Failure: ...
    def flatten(self, index: int, out: int, kind: int, out_size: int) -> _Failure: ...
    def attention_mask(self, index: int, out: int, kind: int, width: int, left: bool) -> _Failure: ...
    def lengths(self, index: int, out: int) -> None: ...

class Recipe:
    def __init__(
        self,
        spec: Any,
        facts: tuple[tuple[int, Any, Any, Any], ...],
        interop: Interop,
        deferred: Callable[..., Any] | None = None,
        compared: bool = False,
    ) -> None: ...
    def make(self, collator: object, features: object, compares: bool = False) -> Any: ...
    def holds(self, collator: object) -> bool: ...

class Comparisons:
    def __init__(self) -> None: ...
    def should_compare(self, columns: Columns, names: tuple[str, ...]) -> bool: ...

class Recipes:
    def __init__(self, recipes: tuple[Recipe, ...]) -> None: ...
    def runner(self) -> Callable[[Any, Any], Any]: ...
    def make(self, collator: object, features: object, compares: bool = False) -> Any: ...

def made_batches(reset: bool) -> tuple[int, int]: ...
def collect(
    features: Any, names: tuple[str, ...] | None, interop: Interop
) -> tuple[tuple[str, ...], Columns] | None: ...
def sample(
    generator_type: int, generator: Any, p: float, high: int, count: int
) -> tuple[list[int], list[int], list[int], int, list[int]]: ...

class Labels: ...

class CausalLabels(Labels):
    def __init__(self, pad_id: int, special: int = -1) -> None: ...

class KeptLabels(Labels):
    def __init__(self, mask: int) -> None: ...

class MaskingLabels(Labels):
    def write(
        self,
        ids: int,
        labels: int,
        rows: int,
        width: int,
        left: bool,
        flat: bool,
        lengths: int,
        keys: int,
        special: int,
        offsets: int,
    ) -> _Failure: ...

# As `quadrat.support.generators.Origin.replacement` returns it.
_Replacement = tuple[float, float | None, int, int]

class MaskedLabels(MaskingLabels):
    def __init__(
        self,
        generator_type: int,
        generator: Any,
        mlm_probability: float,
        replacement: _Replacement,
        special_ids: list[int],
        special: int = -1,
        words: int = -1,
        word_format: int = 0,
    ) -> None: ...

# As `quadrat.ops._philox.PhiloxOptions` names them.
_PhiloxOptions = tuple[int, int, float, float, float, int, int]

class PhiloxLabels(MaskingLabels):
    def __init__(
        self,
        options: _PhiloxOptions,
        special_ids: list[int],
        special: int = -1,
        words: int = -1,
        word_format: int = 0,
        keys: int = -1,
        epoch: NDArray[np.uint32] | None = None,
    ) -> None: ...

# Addresses; lengths and starts are int64.
def check_offsets(offsets: _Ints, size: int) -> tuple[_Failure, int, int]: ...
def copy_rows(
    values: int, values_size: int, kind: int, bounds: _Ints, numbers: _Ints, out: int, out_size: int
) -> _Failure: ...
def pack_rows(
    lengths: _Ints,
    max_length: int,
    fit: int,
    rows: _Ints,
    offsets: _Ints,
    counts: _Ints | None = None,
    max_count: int = 0,
) -> tuple[_Failure, int]: ...
def measure_rows(
    rows: list[Any], name: str | None, bare: bool, kind: type[Any], first: int, out: _Ints, interop: Interop
) -> int: ...
def philox_order(seed: int, epoch: int, stream: int, out: _Ints) -> bool: ...

# As `quadrat.batching.budget.Budget` names them.
_Budget = tuple[int, int, int, bool]

def plan_batches(
    lengths: _Ints, budget: _Budget, window: int, order: _Ints, batches: _Ints
) -> tuple[_Failure, int]: ...
def balance_batches(
    lengths: _Ints,
    budget: _Budget,
    order: _Ints,
    batches: _Ints,
    count: int,
    ranks: int,
    step_order: _Ints | None,
    out: _Ints,
) -> bool: ...
def unpad(padded: int, width: int, left: bool, offsets: _Span, token: int, out: int, out_size: int) -> _Failure: ...
def count_masked(mask: int, width: int, offsets: _Span) -> _Failure: ...
def unpad_masked(padded: int, mask: int, width: int, token: int, offsets: _Span, out: int) -> _Failure: ...
def mask_layout(
    mask: int, item: int, width: int, cu_seqlens: _Span, lengths: int
) -> tuple[_Failure, int, int, bool]: ...
def mask_indices(mask: int, item: int, size: int, out: _Span) -> _Failure: ...
def take_tokens(values: int, size: int, token: int, indices: _Span, out: int) -> _Failure: ...
def put_tokens(values: int, token: int, indices: _Span, out: int, size: int) -> _Failure: ...
def prefix_tree(
    ids: _Span, positions: int, offsets: _Span, shortest: int, nodes: int, token_of_cell: int, cell_of_token: int
) -> tuple[_Failure, int, int]: ...
def dict_of(feature: Any, interop: Interop) -> Any: ...
def permutation_mask(
    generator: Any,
    shuffler: Any | None,
    contexts: Sequence[int],
    special_ids: Sequence[int],
    mask_id: int,
    rows: int,
    width: int,
    functional: int,
    ids: int,
    labels: int,
    perm_mask: int,
    target_mapping: int,
) -> _Failure: ...

class WordLabels(Labels):
    def __init__(
        self,
        shuffle: Any,
        generator_type: int,
        generator: Any,
        probability: float,
        replacement: _Replacement,
        pieces: NDArray[np.uint8],
        joined: bool,
        before: Callable[[], None] | None,
    ) -> None: ...

class FlatColumn:
    def __len__(self) -> int: ...
    @property
    def kind(self) -> int | None: ...

def arrow_columns(source: Any, name: str = "") -> tuple[tuple[str, ...] | None, list[FlatColumn]]: ...
def memory_column(
    values: int, kind: int, tokens: int, offsets: int, rows: int, keep: object, trailing: Sequence[int] = ()
) -> FlatColumn: ...

class Table:
    def __init__(
        self,
        names: tuple[str, ...],
        columns: Sequence[FlatColumn | list[Any] | tuple[Any, ...] | None],
        fallback: Callable[[str, int], Any] | None = None,
        looks: Sequence[tuple[int, int]] = [],
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    def row(self, key: int, mapping: FlatColumn | None = None) -> dict[str, Any]: ...

class TableRows:
    @overload
    def __init__(self, table: Table, keys: Sequence[int] | None = None, mapping: FlatColumn | None = None) -> None: ...
    @overload
    def __init__(self, rows: TableRows, first: int, step: int, count: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def handed_out(self) -> bool: ...
    def hand_out(self) -> None: ...
    def row(self, i: int) -> dict[str, Any]: ...
    def value(self, name: str, i: int) -> Any: ...
