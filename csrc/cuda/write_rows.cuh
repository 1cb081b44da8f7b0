// How the threads of a launch share the rows of an output, and how each writes what falls to it.
#pragma once

#include "kernel.cuh"
#include "piece.hpp"
#include "shape.hpp"

namespace quadrat::cuda {

// Words that a thread loads before it stores the first, and the blocks that a multiprocessor is to hold at least: 64
// registers a thread. Fewer words wait too little for memory at a time; more registers leave too few threads to wait.
inline constexpr int words_ahead = 4;
#define QUADRAT_PIECE_BOUNDS __launch_bounds__(piece_threads, 4)

// What stands in the data of a row: the values it is copied from, or numbers that nothing is read for.
struct Values {
    Address from;  // of the piece's first byte
    QUADRAT_HOST_DEVICE int shift() const { return static_cast<int>(from % word_bytes); }
    template <typename T>
    __device__ T element(int place) const {
        return load_constant<T>(from + static_cast<Address>(place));
    }
};

struct Same {
    std::uint64_t value;  // one element, repeated
    template <typename T>
    __device__ T element(int) const {
        return static_cast<T>(value);
    }
    __device__ Word word(int) const { return word_of(value, value); }
};

// int64, counting up.
struct Counting {
    std::uint64_t first;  // at place 0 of the piece
    template <typename T>
    __device__ T element(int place) const {
        return static_cast<T>(first + static_cast<std::uint64_t>(place / 8));
    }
    __device__ Word word(int place) const {
        const std::uint64_t number = first + static_cast<std::uint64_t>(place / 8);
        return word_of(number, number + 1);
    }
};

struct Lanes {
    int lane;   // of this thread
    int count;  // that share a piece
};

template <typename Source>
__device__ inline void write_words(const Piece& piece, const Words& words, const Source& source, const Lanes& lanes) {
    for (int at = words.data + lanes.lane * word_bytes; at < words.data_end; at += lanes.count * word_bytes) {
        store(piece.to + static_cast<Address>(at), source.word(at));
    }
}

// Loads run ahead of stores: a thread waits for memory once for several words.
__device__ inline void write_words(const Piece& piece, const Words& words, const Values& source, const Lanes& lanes) {
    constexpr int ahead = words_ahead;
    const int shift = source.shift();
    const Address from = source.from - static_cast<Address>(shift);
    const int step = lanes.count * word_bytes;
    for (int at = words.data + lanes.lane * word_bytes; at < words.data_end; at += step * ahead) {
        Word first[ahead] = {}, second[ahead] = {};
        QUADRAT_UNROLL
        for (int k = 0; k < ahead; ++k) {
            const int place = at + k * step;
            if (place < words.data_end) {
                first[k] = load_constant<Word>(from + static_cast<Address>(place));
                if (shift != 0) {
                    second[k] = load_constant<Word>(from + static_cast<Address>(place + word_bytes));
                }
            }
        }
        QUADRAT_UNROLL
        for (int k = 0; k < ahead; ++k) {
            const int place = at + k * step;
            if (place < words.data_end) {
                store(piece.to + static_cast<Address>(place),
                      shift == 0 ? first[k] : between(first[k], second[k], shift));
            }
        }
    }
}

template <typename T, typename Source>
__device__ inline void write_elements(const Piece& piece, const Words& words, const Source& source, T fill,
                                      const Lanes& lanes) {
    const int head = words.head_end - words.head;
    const int data = words.data_end - words.data;
    const int tail = words.tail_end - words.tail;
    const int bytes = piece.end - piece.begin - head - data - tail;
    constexpr int item = static_cast<int>(sizeof(T));
    for (int k = lanes.lane * item; k < bytes; k += lanes.count * item) {
        int at = piece.begin + k;  // what is in words is leapt over
        at += at >= words.head ? head : 0;
        at += at >= words.data ? data : 0;
        at += at >= words.tail ? tail : 0;
        const bool inside = at >= piece.data_begin && at < piece.data_end;
        store(piece.to + static_cast<Address>(at), inside ? source.template element<T>(at) : fill);
    }
}

// What an output is painted with. low, high: the bounds of what may be read.
struct Paint {
    int item;
    std::uint64_t fill;  // one element, repeated
    Address low, high;
};

template <typename Source>
__device__ inline void write_piece(const Piece& piece, const Source& source, const Paint& paint, const Lanes& lanes) {
    const Words words = words_of(piece, paint.low, paint.high);
    write_words(piece, words, source, lanes);
    const Word filling = word_of(paint.fill, paint.fill);
    const int step = lanes.count * word_bytes;
    const auto fill = [&](int begin, int end) {
        for (int at = begin + lanes.lane * word_bytes; at < end; at += step) {
            store(piece.to + static_cast<Address>(at), filling);
        }
    };
    fill(words.tail, words.tail_end);
    fill(words.head, words.head_end);
    if (paint.item == 8) {
        write_elements<std::uint64_t>(piece, words, source, paint.fill, lanes);
    } else if (paint.item == 4) {
        write_elements<std::uint32_t>(piece, words, source, static_cast<std::uint32_t>(paint.fill), lanes);
    } else if (paint.item == 2) {
        write_elements<std::uint16_t>(piece, words, source, static_cast<std::uint16_t>(paint.fill), lanes);
    } else {
        write_elements<std::uint8_t>(piece, words, source, static_cast<std::uint8_t>(paint.fill), lanes);
    }
}

// Calls f(column, block) for the column that this block falls to; columns have their blocks one after the other.
template <typename Call, typename F>
__device__ inline void for_column(const Call& call, F f) {
    std::int64_t block = blockIdx.x;
    for (int i = 0; i < call.count; ++i) {
        const std::int64_t blocks = call.columns[i].pieces.blocks;
        if (block < blocks) {
            f(call.columns[i], block);
            return;
        }
        block -= blocks;
    }
}

// Zeros over a range of memory; threads: of this number, the others are told by lanes.
__device__ inline void write_zeros(Address begin, Address end, std::int64_t thread, std::int64_t threads) {
    if (begin >= end) {
        return;
    }
    const Address words = word_below(begin + word_bytes - 1), words_end = word_below(end);
    if (words < words_end) {
        const Address step = static_cast<Address>(threads) * word_bytes;
        for (Address at = words + static_cast<Address>(thread) * word_bytes; at < words_end; at += step) {
            store(at, word_of(0, 0));
        }
    }
    if (thread == 0) {  // fewer than two words
        for (Address at = begin; at < end; ++at) {
            at = at >= words && at < words_end ? words_end : at;
            if (at < end) {
                store(at, std::uint8_t{0});
            }
        }
    }
}

// The piece of an output that falls to a group of threads.
struct Turn {
    std::int64_t row;
    std::uint64_t at;  // where in the row, in bytes
    Lanes lanes;
};

__device__ inline Turn turn_of(const Pieces& pieces, std::int64_t block) {
    const unsigned lanes = 1U << pieces.lanes_log;
    const std::int64_t group = block * (blockDim.x >> pieces.lanes_log) + (threadIdx.x >> pieces.lanes_log);
    const std::int64_t row = quotient(group, pieces.per_row);
    return {row,
            static_cast<std::uint64_t>(group - row * pieces.per_row) << pieces.bytes_log,
            {static_cast<int>(threadIdx.x & (lanes - 1)), static_cast<int>(lanes)}};
}

// The rows of one output. block: its number among those of this output. region_of(row) says where a row lies,
// source_of(row, region, piece) what stands in it. longer: rows may be longer than their pieces. The loop costs
// registers, and with them threads that wait for memory together.
template <bool longer = false, typename RegionOf, typename SourceOf>
__device__ inline void write_rows(const Pieces& pieces, std::int64_t block, const Paint& paint, RegionOf region_of,
                                  SourceOf source_of) {
    Turn turn = turn_of(pieces, block);
    if (turn.row >= pieces.rows) {
        return;
    }
    const Region region = region_of(turn.row);
    const std::uint64_t span = span_of(region);
    while (turn.at < span) {
        const Piece piece = piece_of(region, turn.at, 1 << pieces.bytes_log);
        write_piece(piece, source_of(turn.row, region, piece), paint, turn.lanes);
        if constexpr (!longer) {
            return;
        }
        turn.at += static_cast<std::uint64_t>(pieces.per_row) << pieces.bytes_log;
    }
}

}  // namespace quadrat::cuda
