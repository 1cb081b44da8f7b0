// Best fit of packs with two limits: tokens, and a count such as that of images.
#pragma once

#include <cstdint>

#include "bit_tree.hpp"

namespace quadrat {

// Packs by their room for tokens and for counts: a stack of packs for each pair that occurs, and a bit that says so.
class PacksByTwo {
public:
    static std::int64_t scratch(std::int64_t rows, std::int64_t max_length, std::int64_t most) {
        const std::int64_t pairs = (max_length + 1) * (most + 1);
        return BitTree::words(pairs) + pairs + rows;
    }

    PacksByTwo(std::int64_t max_length, std::int64_t most, std::int64_t* scratch)
        : width_(max_length + 1),
          most_(most),
          pairs_(width_ * (most + 1), reinterpret_cast<std::uint64_t*>(scratch)),
          last_(scratch + BitTree::words(width_ * (most + 1))),
          below_(last_ + width_ * (most + 1)) {}

    // The pack that a row goes into.
    std::int64_t place(std::int64_t length, std::int64_t count) {
        std::int64_t room = BitTree::none, counts = most_;
        for (std::int64_t at = count; at <= most_;) {
            const std::int64_t pair = pairs_.at_least(at * width_ + length);
            if (pair == BitTree::none) {
                break;
            }
            const bool fits = pair % width_ >= length;
            if (fits && (room == BitTree::none || pair % width_ < room)) {
                room = pair % width_;
                counts = pair / width_;
            }
            at = pair / width_ + (fits ? 1 : 0);
        }
        const std::int64_t pack = room == BitTree::none ? packs_++ : take(counts * width_ + room);
        add(pack, (counts - count) * width_ + (room == BitTree::none ? width_ - 1 : room) - length);
        return pack;
    }

    std::int64_t packs() const { return packs_; }

private:
    std::int64_t width_;
    std::int64_t most_;
    BitTree pairs_;
    std::int64_t* last_;   // by pair, where it occurs: the top of its stack
    std::int64_t* below_;  // by pack
    std::int64_t packs_ = 0;

    std::int64_t take(std::int64_t pair) {
        const std::int64_t pack = last_[pair];
        last_[pair] = below_[pack];
        if (last_[pair] == BitTree::none) {
            pairs_.remove(pair);
        }
        return pack;
    }

    void add(std::int64_t pack, std::int64_t pair) {
        below_[pack] = pairs_.has(pair) ? last_[pair] : BitTree::none;
        last_[pair] = pack;
        pairs_.insert(pair);
    }
};

}  // namespace quadrat
