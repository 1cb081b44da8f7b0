from collections.abc import Sequence

# Addresses are of device memory, aligned to their elements, and must stay valid until the stream has got past the call.
# `item` is the size of an element in bytes, 1, 2, 4 or 8; offsets, `[rows + 1]`, are int64 counts of elements. The
# calls queue work and return; what the host can check raises ValueError, a CUDA error RuntimeError. csrc/cuda/calls.hpp
# says what each parameter is.

# As `quadrat.ops._philox.PhiloxOptions` names them.
_PhiloxOptions = tuple[int, int, float, float, float, int, int]

def description() -> str: ...

# Initialises the CUDA driver, as the kernels do: not before a fork.
def device_count() -> int: ...

# Columns (values, values_size, offsets, width, left, item, inner, value, fill, out), 16 at most, of the same number of
# rows; tokens have `inner` elements, value and fill are the bits of one. values=0: `value` stands where data would, as
# 1 does in an attention mask. out: `[rows, width, inner]`; every element is written.
def pad_columns(
    columns: Sequence[tuple[int, int, int, int, bool, int, int, int, int, int]], rows: int, device: int, stream: int
) -> None: ...

# Columns (source, values, values_size, inner, item, value, fill, out), 16 at most; the sources are 0 values, copied,
# 1 the same with `fill` for the first token of each row that has one, 2 position_ids from `value`, 3 seq_idx,
# 4 cu_seqlens. out: `[out_size, inner]`, of the last `[rows + 1]`; `fill` follows the last row, and what 2 counts.
def flatten_columns(
    columns: Sequence[tuple[int, int, int, int, int, int, int, int]],
    offsets: int,
    rows: int,
    out_size: int,
    device: int,
    stream: int,
) -> None: ...
def unpad(
    padded: int,
    offsets: int,
    rows: int,
    width: int,
    left: bool,
    item: int,
    inner: int,
    out: int,
    out_size: int,
    device: int,
    stream: int,
) -> None: ...

# state: `[4 + rows * segments]` int64, MASK_SEGMENT places of a row each; first the tokens kept, those of the longest
# row, and 1 where a number is neither 0 nor 1.
def mask_layout(
    mask: int,
    item: int,
    rows: int,
    width: int,
    state: int,
    indices: int,
    cu_seqlens: int,
    lengths: int,
    device: int,
    stream: int,
) -> None: ...
def take_tokens(
    values: int, size: int, token: int, indices: int, count: int, out: int, device: int, stream: int
) -> None: ...
def causal_labels(ids: int, count: int, pad_id: int, labels: int, device: int, stream: int) -> None: ...
def row_keys(
    values: int,
    values_size: int,
    offsets: int,
    rows: int,
    width: int,
    left: bool,
    flat: bool,
    out: int,
    device: int,
    stream: int,
) -> None: ...
def philox_mask(
    options: _PhiloxOptions,
    row_keys: int,
    offsets: int,
    rows: int,
    width: int,
    left: bool,
    flat: bool,
    words: int,
    set: int,
    set_size: int,
    ids: int,
    labels: int,
    out_size: int,
    device: int,
    stream: int,
) -> None: ...
def pad_masked(
    options: _PhiloxOptions,
    row_keys: int,
    values: int,
    values_size: int,
    offsets: int,
    rows: int,
    width: int,
    left: bool,
    set: int,
    set_size: int,
    fill: int,
    ids: int,
    labels: int,
    attention_mask: int,
    device: int,
    stream: int,
) -> None: ...
