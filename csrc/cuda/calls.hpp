// What each kernel is called with. Addresses are the device's; the bindings have checked what the host can check, and
// the kernels guard against the rest, which only the device can see: the offsets and starts themselves.
#pragma once

#include "../kernels/philox_mask.hpp"
#include "../kernels/simd.hpp"
#include "../kernels/types.hpp"

namespace quadrat::cuda {

// How an output is shared among blocks, see shape.hpp: pieces of 2**bytes_log bytes, each of 2**lanes_log threads.
struct Pieces {
    std::int64_t rows = 0;
    std::int64_t per_row = 1;  // that are taken at the same time; a longer row takes several turns
    std::int64_t blocks = 0;
    int lanes_log = 0;
    int bytes_log = 12;
};

// Rows, and the places that they have in a padded batch.
struct Rows {
    const std::int64_t* offsets;  // [rows + 1], in tokens
    std::int64_t rows;
    std::int64_t width;
    Side side;
};

// An output of a launch. value, fill: the bits of one element, in the low end.
struct Output {
    const void* values;  // [values_size, inner]
    std::int64_t values_size;
    std::int64_t inner;
    std::size_t item;
    std::uint64_t value;
    std::uint64_t fill;
    void* out;
    Pieces pieces = {};
};

// One output of pad_columns: [rows, width, inner]. Without values, `value` stands there, as in an attention mask.
struct PadColumn : Output {
    const std::int64_t* offsets;  // [rows + 1], in tokens
    std::int64_t width;
    Side side;
};

// Columns of a launch: what the parameters of a kernel hold, 4 KB of which all versions of CUDA take.
inline constexpr int most_columns = 16;

// `most` columns at most: parameters are copied with each launch, and one column is the usual number.
template <int most>
struct SomeColumns {
    std::int64_t rows;
    int count;
    PadColumn columns[most];
};

using PadColumns = SomeColumns<most_columns>;

// padded: [rows, width, inner]; out: [out_size, inner]. Row i goes to offsets[i], its first `width` tokens
// if it is longer; zeros fill what no row covers.
struct Unpad : Rows {
    const void* padded;
    std::int64_t inner;
    std::size_t item;
    void* out;
    std::int64_t out_size;
    Pieces pieces = {};
};

// One output of flatten_columns. Every row is as long as in the offsets; what follows the last row is filled.
enum class FlatContent : std::uint8_t {
    values,     // copied
    separated,  // copied, but for the first token of each row, which is filled
    positions,  // int64, counting from `value`; those after the last row go on counting
    sequences,  // int32, the number of the row
    bounds,     // int32, where rows begin, and where the last one ends; [rows + 1]
};

struct FlatColumn : Output {  // [out_size, inner]
    FlatContent content;
};

struct FlattenColumns {
    const std::int64_t* offsets;  // [rows + 1], in tokens
    std::int64_t rows;
    std::int64_t out_size;
    int count;
    FlatColumn columns[most_columns];
};

// labels[i] = ids[i], -100 where that is pad_id; [count]. It counts as one row of `count` for the threads.
struct CausalLabels {
    static constexpr std::int64_t rows = 1;
    const std::int64_t* ids;
    std::int64_t count;
    std::int64_t pad_id;
    std::int64_t* labels;
};

// Row i is values[offsets[i]:offsets[i + 1]], or, where not `flat`, a row of values that are padded already,
// [rows, width]. The launcher zeroes `out` first: threads add to it.
struct RowKeys : Rows {
    const std::int64_t* values;
    std::int64_t values_size;
    bool flat;
    std::uint64_t* out;  // [rows]
};

// Rows of ids, [rows, width], or, where `flat`, [out_size], row i at offsets[i] - offsets[0]: their labels, and the ids
// masked in place. Where it `pads`, the ids are first written, with an attention mask: row i, padded, is
// values[offsets[i]:offsets[i + 1]].
struct PhiloxMask : Rows {
    PhiloxMasking how;
    const std::uint64_t* row_keys;  // [rows]
    const std::uint64_t* set;       // ids whose bit is 1 are special: not masked
    std::int64_t set_size;
    const std::uint8_t* words;  // as the ids, instead of `set`: word_begins, or not to be masked; or nullptr
    std::int64_t* ids;
    std::int64_t* labels;
    std::int64_t out_size;
    bool flat, pads;
    const std::int64_t* values;
    std::int64_t values_size;
    std::int64_t fill;
    std::int64_t* attention_mask;  // or nullptr
};

// What mask_layout finds out, and how far it has got; zeros at first. The launcher clears it.
struct MaskState {
    std::uint64_t total;    // tokens kept
    std::uint64_t longest;  // tokens kept of one row, at most
    std::uint64_t unusual;  // 1 where a number is neither 0 nor 1
    std::uint64_t ticket;   // the next segment
};

// The places of a row that a warp has, at most.
inline constexpr std::int64_t mask_segment = 1024;

QUADRAT_HOST_DEVICE inline std::int64_t segments_of(std::int64_t width) {
    return (width + mask_segment - 1) / mask_segment;
}

// mask: [rows, width] integers of `item` bytes.
struct MaskLayout {
    const void* mask;
    std::size_t item;
    std::int64_t rows;
    std::int64_t width;
    MaskState* state;
    std::uint64_t* published;  // [rows * segments_of(width)], after the state
    std::int64_t* indices;     // room for [rows * width]
    std::int32_t* cu_seqlens;  // [rows + 1]
    std::int32_t* lengths;     // [rows]
};

// out[i] = values[indices[i]], tokens of `token` bytes; zeros for an index outside [0, size).
struct TakeTokens {
    const void* values;
    std::int64_t size;
    std::int64_t token;
    const std::int64_t* indices;  // [count]
    std::int64_t count;
    void* out;
};

}  // namespace quadrat::cuda
