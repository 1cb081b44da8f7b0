// Arrays `[rows, width]` below one another, in memory that grows with them: what an evaluation gathers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "../../kernels/concat_padded.hpp"
#include "../../memory/growing.hpp"

namespace quadrat {

// Every function is told how many pieces count. Those after them were left by an addition that came to no end: a
// function that writes overwrites them. Where one throws, the pieces that count are as they were.
class Gathered {
public:
    // token: the bytes of what stands at one position of a row.
    explicit Gathered(std::size_t token) : token_(token) {}

    // Adds a piece. Throws std::bad_alloc.
    void append(std::size_t count, const void* data, std::int64_t rows, std::int64_t width);
    // Adds a piece for each row, `widths[row]` tokens, that lie one after the other at `data`. Throws std::bad_alloc.
    void append_rows(std::size_t count, const void* data, Span<const std::int64_t> widths);
    // Fills all rows out to the widest, with copies of the bytes of `fill`. Throws std::bad_alloc.
    void pad(std::size_t count, std::string_view fill);
    // The same pieces in memory of their own. Throws std::bad_alloc.
    Gathered copy(std::size_t count) const { return retyped(count, memory_->data(), token_); }
    // Pieces of the same rows and widths, whose tokens are at `data`. Throws std::bad_alloc.
    Gathered retyped(std::size_t count, const void* data, std::size_t token) const;

    std::size_t size() const { return pieces_.size(); }
    // Where each piece lies, until something is written.
    std::vector<Block> blocks(std::size_t count) const;
    std::size_t bytes(std::size_t count) const { return count == 0 ? 0 : pieces_[count - 1].end; }
    // The memory, of no more than these pieces. It stays as it is while somebody else holds it: what is written then
    // goes to a copy.
    const std::shared_ptr<memory::Growing>& share(std::size_t count);

private:
    struct Piece {
        std::int64_t rows;
        std::int64_t width;
        std::int64_t widest;  // of this piece and those before
        std::size_t end;      // of its bytes
    };

    std::int64_t width(std::size_t count) const { return count == 0 ? 0 : pieces_[count - 1].widest; }
    Piece next(std::size_t count, std::int64_t rows, std::int64_t width) const;
    // Memory that nobody else holds, of the first `count` pieces and `more` bytes that are to be written.
    char* own(std::size_t count, std::size_t more);
    bool is_shared() const;

    std::size_t token_;
    std::vector<Piece> pieces_;
    std::shared_ptr<memory::Growing> memory_ = std::make_shared<memory::Growing>();
};

}  // namespace quadrat
