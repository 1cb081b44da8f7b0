// Pieces: how outputs made of rows are written. A row of an output is a region, of which a part is data and the rest,
// on either side, is filled. Threads in groups take a piece of a row each. In it, whatever makes up whole words is
// written in words, read from wherever the source lies in its words; the few elements at the ends follow one by one.
#pragma once

#include <cstdint>

#include "index.hpp"
#include "words.hpp"

namespace quadrat::cuda {

// One row of an output, as addresses: begin <= data_begin <= data_end <= end. `source` is where the data come from.
struct Region {
    Address begin, end;
    Address data_begin, data_end;
    Address source;
};

// Where the words of a piece are, in bytes from its start: words of filling from head to head_end and from tail to
// tail_end, words of data from data to data_end. What is not in them is written by elements.
struct Words {
    int head, head_end;
    int data, data_end;
    int tail, tail_end;
};

// A piece of a region: `to` begins a word, everything else counts from there. Byte i of the data comes from from + i.
struct Piece {
    Address to, from;
    int begin, end;
    int data_begin, data_end;
};

// The piece that begins at this distance from the word that the region begins in, and is `bytes` long; both are
// multiples of a word.
QUADRAT_HOST_DEVICE inline Piece piece_of(const Region& region, std::uint64_t distance, int bytes) {
    const Address to = word_below(region.begin) + distance;
    const auto inside = [&](Address address, int low, int high) {
        const std::int64_t place = static_cast<std::int64_t>(address - to);
        return static_cast<int>(clamp(place, low, high));
    };
    Piece piece;
    piece.to = to;
    piece.from = to + (region.source - region.data_begin);  // modulo 2**64, as the sum of this and a place in the data
    piece.begin = inside(region.begin, 0, bytes);
    piece.end = inside(region.end, 0, bytes);
    piece.data_begin = inside(region.data_begin, piece.begin, piece.end);
    piece.data_end = inside(region.data_end, piece.data_begin, piece.end);
    return piece;
}

// From the word that a region begins in to its end.
QUADRAT_HOST_DEVICE inline std::uint64_t span_of(const Region& region) {
    return region.end > region.begin ? region.end - word_below(region.begin) : 0;
}

// The place of a row in a padded output of elements of so many bytes; the source is left open.
QUADRAT_HOST_DEVICE inline Region padded_region(const void* out, std::int64_t row, std::int64_t length,
                                                std::int64_t width, Side side, std::int64_t bytes) {
    const Run data = padded_run(row, length, width, side);
    const Address begin = address_of(out) + static_cast<Address>(row * width * bytes);
    const Address first = address_of(out) + static_cast<Address>(data.first * bytes);
    return {begin, begin + static_cast<Address>(width * bytes), first,
            first + static_cast<Address>(data.length * bytes), first};
}

QUADRAT_HOST_DEVICE inline int up_to_word(int place) { return (place + word_bytes - 1) & -word_bytes; }
QUADRAT_HOST_DEVICE inline int down_to_word(int place) { return place & -word_bytes; }

// low, high: the bounds of the memory that may be read; a word of data needs one or two whole words inside it.
QUADRAT_HOST_DEVICE inline Words words_of(const Piece& piece, Address low, Address high) {
    Words words;
    words.head = up_to_word(piece.begin);
    words.head_end = down_to_word(piece.data_begin);
    if (words.head_end <= words.head) {
        words.head = words.head_end = piece.begin;
    }
    words.tail = up_to_word(piece.data_end);
    words.tail_end = down_to_word(piece.end);
    if (words.tail_end <= words.tail) {
        words.tail = words.tail_end = piece.end;
    }
    const int shift = static_cast<int>(piece.from % word_bytes);
    const Address source = piece.from - static_cast<Address>(shift);
    words.data = up_to_word(piece.data_begin);
    words.data_end = down_to_word(piece.data_end);
    if (words.data < words.data_end && source + static_cast<Address>(words.data) < low) {
        words.data += word_bytes;
    }
    const int reach = shift == 0 ? 0 : word_bytes;
    if (words.data < words.data_end && source + static_cast<Address>(words.data_end + reach) > high) {
        words.data_end -= word_bytes;
    }
    if (words.data_end <= words.data) {
        words.data = words.data_end = piece.data_begin;
    }
    return words;
}

}  // namespace quadrat::cuda
