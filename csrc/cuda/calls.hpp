// What each kernel is called with. Addresses are the device's; the bindings have checked what the host can check, and
// the kernels guard against the rest, which only the device can see: the offsets and starts themselves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../kernels/philox_mask.hpp"
#include "../kernels/row.hpp"

namespace quadrat::cuda {

// Rows have `item` bytes per element and lie in `values` between offsets[i] and offsets[i + 1], both in elements.
struct CopyRows {
    const void* values;
    std::int64_t values_size;
    const std::int64_t* offsets;  // [rows + 1]
    std::int64_t rows;
    const std::int64_t* start;  // [rows], or nullptr for a padded output, [rows, width]
    std::int64_t width;
    Side side;
    std::size_t item;
    void* out;
    std::int64_t out_size;
};

// out: [rows, width], contiguous. `value`: the bits of one element, in the low end.
struct FillGaps {
    const std::int64_t* offsets;
    std::int64_t rows;
    std::int64_t width;
    Side side;
    std::size_t item;
    std::uint64_t value;
    void* out;
};

// out: [rows, width], contiguous. `one`: the bits of the number 1, in the low end.
struct AttentionMask {
    const std::int64_t* offsets;
    std::int64_t rows;
    std::int64_t width;
    Side side;
    std::size_t item;
    std::uint64_t one;
    void* out;
};

// The rows of a flat batch: row i lies at offsets[i] - offsets[0].
struct PositionIds {
    const std::int64_t* offsets;  // [rows + 1]
    std::int64_t rows;
    std::int64_t start;  // the position of a row's first token
    std::int64_t* out;   // [out_size]
    std::int64_t out_size;
};

struct SeqIdx {
    const std::int64_t* offsets;  // [rows + 1]
    std::int64_t rows;
    std::int32_t* out;  // [out_size]
    std::int64_t out_size;
};

// rows: of the output, one more than the batch has.
struct CuSeqlens {
    const std::int64_t* offsets;  // [rows]
    std::int64_t rows;
    std::size_t item;
    void* out;  // [rows]
};

// value: the bits of one element, in the low end.
struct SeparateRows {
    const std::int64_t* start;  // [rows]
    std::int64_t rows;
    std::size_t item;
    std::uint64_t value;
    void* out;  // [out_size]
    std::int64_t out_size;
};

// What has no rows is one row of `count`, as far as threads are concerned; labels: [count].
struct CausalLabels {
    static constexpr std::int64_t rows = 1;
    const std::int64_t* ids;
    std::int64_t count;
    std::int64_t pad_id;
    std::int64_t* labels;
};

// set: [set_size], a bit per id. out: [count].
struct SpecialTokens {
    static constexpr std::int64_t rows = 1;
    const std::int64_t* ids;
    std::int64_t count;
    const std::uint64_t* set;
    std::int64_t set_size;
    std::uint8_t* out;
};

// offsets: [rows, width, 2]; special, words: [rows, width].
struct WordStarts {
    const std::int64_t* offsets;
    const std::uint8_t* special;
    std::int64_t rows;
    std::int64_t width;
    std::uint8_t* words;
};

// Rows as in CopyRows, or, where not `flat`, in values that are padded already, [rows, width]. The launcher zeroes
// `out` first: threads add to it.
struct RowKeys {
    const std::int64_t* values;
    std::int64_t values_size;
    const std::int64_t* offsets;  // [rows + 1]
    std::int64_t rows;
    std::int64_t width;
    Side side;
    bool flat;
    std::uint64_t* out;  // [rows]
};

// The rows of ids and labels, [rows, width]; or, where `flat`, [out_size], row i at offsets[i] - offsets[0].
struct PhiloxMask {
    PhiloxMasking how;
    const std::uint64_t* row_keys;  // [rows]
    const std::int64_t* offsets;    // [rows + 1]
    std::int64_t rows;
    std::int64_t width;
    Side side;
    bool flat;
    const std::uint8_t* words;  // as the ids; or nullptr: words of one token, but for the ids whose bit in `set` is 1
    const std::uint64_t* set;
    std::int64_t set_size;
    std::int64_t* ids;
    std::int64_t* labels;
    std::int64_t out_size;
};

// word_ids, special, words: [rows, width].
struct WordStartsOfIds {
    const std::int64_t* word_ids;
    const std::uint8_t* special;
    std::int64_t rows;
    std::int64_t width;
    std::uint8_t* words;
};

}  // namespace quadrat::cuda
