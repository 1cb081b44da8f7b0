// How many threads a kernel is started with, and how they share its work.
#pragma once

#include <algorithm>
#include <cstdint>

#include "calls.hpp"

namespace quadrat::cuda {

// Threads of a block: x along a row, y among rows. Blocks: x among rows, of which there may be more, y along them.
struct Shape {
    unsigned threads_x, threads_y;
    unsigned blocks_x, blocks_y;
};

// Enough to fill any GPU several times over, and as many as the y axis takes; beyond that a thread has a larger share.
inline constexpr std::int64_t most_blocks = 65535;

// rows, max_blocks: at least 1. Short rows share a block, a warp or more each.
inline Shape launch_shape(std::int64_t rows, std::int64_t width, std::int64_t max_blocks) {
    constexpr unsigned block = 256;
    unsigned threads = 32;
    while (threads < block && threads < width) {
        threads *= 2;
    }
    const std::int64_t down = std::min((rows - 1) / (block / threads) + 1, max_blocks);
    const std::int64_t across = std::min((std::max<std::int64_t>(width, 1) - 1) / threads + 1, max_blocks / down);
    return {threads, block / threads, static_cast<unsigned>(down), static_cast<unsigned>(across)};
}

// Threads of a block that writes rows in pieces.
inline constexpr int piece_threads = 256;
inline constexpr std::int64_t most_piece_blocks = 0x7fffffff;  // what the x axis takes: 8 rows each, or 32 KB
inline constexpr int piece_log = 12;  // pieces have 4 KB unless tests, or a small output, want them shorter

// The last blocks of unpad: they clear what lies before the first row and after the last, of any size, usually none.
inline constexpr std::int64_t unpad_cleaning_blocks = 64;

// rows: at least 1. bytes: of a row that is to fit its pieces, of a typical row, and of all rows together. Each lane
// takes several words of a row, and a group writes 128 bytes or more side by side, unless rows are shorter. Where there
// are few pieces they are short, so that all of a GPU takes part.
inline Pieces pieces_of(std::int64_t rows, std::int64_t bytes, std::int64_t typical, std::int64_t total, int most_log) {
    constexpr std::int64_t few = std::int64_t{1} << 12;  // pieces under way at the same time
    Pieces pieces;
    pieces.rows = rows;
    const std::int64_t words = typical / 16 + 1;
    const std::int64_t lanes = std::max(words / 8, std::min<std::int64_t>(words / 4, 8));
    for (pieces.lanes_log = 1; pieces.lanes_log < 5 && (std::int64_t{1} << pieces.lanes_log) < lanes;) {
        ++pieces.lanes_log;
    }
    pieces.bytes_log = most_log;
    const int least_log = pieces.lanes_log + 5;  // two words for each lane
    while (pieces.bytes_log > least_log && total >> pieces.bytes_log < few) {
        --pieces.bytes_log;
    }
    if (pieces.bytes_log == piece_log && bytes <= (2 << piece_log) - 16) {
        ++pieces.bytes_log;  // in one piece, wherever in a word it begins
    }
    pieces.per_row = ((bytes + 15) >> pieces.bytes_log) + 1;
    const std::int64_t groups = piece_threads >> pieces.lanes_log;
    pieces.blocks = (rows * pieces.per_row - 1) / groups + 1;
    return pieces;
}

inline Pieces padded_pieces(std::int64_t rows, std::int64_t width, std::int64_t token, int most_log) {
    return pieces_of(rows, width * token, width * token, rows * width * token, most_log);
}

template <typename Call>
std::int64_t token_bytes(const Call& call) {
    return call.inner * static_cast<std::int64_t>(call.item);
}

// Where there is nothing to write.
template <typename Call>
bool idle(const Call& call) {
    return call.rows == 0;
}
inline bool idle(const TakeTokens& call) { return call.count == 0 || call.token == 0; }
inline bool idle(const FlattenColumns&) { return false; }  // without rows, too, the last one ends somewhere

// plan: shares a call that is not idle among blocks, and returns their number.
inline std::int64_t plan(Unpad& call, int most_log) {
    const std::int64_t token = token_bytes(call);
    const std::int64_t mean = std::min(call.out_size / call.rows, call.width) * token;
    call.pieces = pieces_of(call.rows, call.width * token, mean, call.out_size * token, most_log);
    return call.pieces.blocks + unpad_cleaning_blocks;
}

template <int most>
std::int64_t plan(SomeColumns<most>& call, int most_log) {
    std::int64_t blocks = 0;
    for (int i = 0; i < call.count; ++i) {
        PadColumn& column = call.columns[i];
        column.pieces = padded_pieces(call.rows, column.width, token_bytes(column), most_log);
        blocks += column.pieces.blocks;
    }
    return blocks;
}

inline std::int64_t plan(FlattenColumns& call, int most_log) {
    std::int64_t blocks = 0;
    for (int i = 0; i < call.count; ++i) {
        FlatColumn& column = call.columns[i];
        if (column.content == FlatContent::bounds) {
            column.pieces.blocks = call.rows / piece_threads + 1;
        } else if (call.rows > 0 && column.content == FlatContent::values) {
            column.pieces = padded_pieces(1, call.out_size, token_bytes(column), most_log);
        } else if (call.rows > 0) {
            // Rows may have any length; what is longer than the mean takes several turns.
            const std::int64_t token = token_bytes(column), mean = call.out_size / call.rows * token;
            column.pieces = pieces_of(call.rows, mean, mean, call.out_size * token, most_log);
        }
        blocks += column.pieces.blocks;
    }
    return blocks;
}

// Words that a thread of take_tokens loads before it stores the first.
inline constexpr int take_ahead = 4;

// The largest word, in bytes, that tokens of a call are made of, wherever they lie.
inline std::size_t word_of_tokens(const TakeTokens& call) {
    const std::uintptr_t together = reinterpret_cast<std::uintptr_t>(call.values) |
                                    reinterpret_cast<std::uintptr_t>(call.out) |
                                    static_cast<std::uintptr_t>(call.token);
    std::size_t word = 16;
    while (together % word != 0) {
        word /= 2;
    }
    return word;
}

// Blocks of piece_threads each.
inline std::int64_t plan(const TakeTokens& call, int) {
    const std::int64_t words = call.count * (call.token / static_cast<std::int64_t>(word_of_tokens(call)));
    return words == 0 ? 0 : (words - 1) / (std::int64_t{piece_threads} * take_ahead) + 1;
}

// The threads of what has a thread per element. The width of a typical row decides.
inline std::int64_t typical_width(const CausalLabels& call) { return call.count; }
inline std::int64_t typical_width(const RowKeys& call) { return call.values_size / call.rows; }
inline std::int64_t typical_width(const PhiloxMask& call) { return call.out_size / call.rows / 4; }  // four a thread

}  // namespace quadrat::cuda
