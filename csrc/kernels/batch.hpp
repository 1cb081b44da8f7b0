// Batches of rows, and what one costs.
#pragma once

#include <cstdint>
#include <limits>

namespace quadrat {

// Rows number `begin` to before `end` of an order of rows.
struct Batch {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t cost;

    std::int64_t rows() const { return end - begin; }
};

// What a batch may cost. No budget and no length is above this, so that sums of two do not overflow.
inline constexpr std::int64_t most_budget = std::int64_t{1} << 61;

struct Budget {
    std::int64_t tokens;
    std::int64_t rows;
    std::int64_t multiple_of;  // the width of a padded batch is one of these, the length of a flat one too
    bool padded;               // rows times the longest; else the sum of lengths

    bool valid() const {
        return tokens >= 1 && tokens <= most_budget && rows >= 1 && multiple_of >= 1 && multiple_of <= tokens;
    }
    std::int64_t whole_tokens() const { return tokens - tokens % multiple_of; }
    std::int64_t rounded(std::int64_t length) const { return (length + multiple_of - 1) / multiple_of * multiple_of; }
};

// Rows that are being gathered into a batch.
struct Gathering {
    std::int64_t rows = 0;
    std::int64_t longest = 0;
    std::int64_t total = 0;
    std::int64_t most_rows = std::numeric_limits<std::int64_t>::max();  // that may be as wide as the longest

    Gathering with(std::int64_t length, const Budget& budget) const {
        Gathering more{rows + 1, longest, total + length, most_rows};
        if (length > longest) {
            more.longest = length;
            more.most_rows = budget.tokens / budget.rounded(length);
        }
        return more;
    }

    bool within(const Budget& budget) const {
        return rows <= budget.rows && (budget.padded ? rows <= most_rows : total <= budget.whole_tokens());
    }

    // Of one row, or of rows within the budget.
    std::int64_t cost(const Budget& budget) const {
        return budget.padded ? rows * budget.rounded(longest) : budget.rounded(total);
    }
};

}  // namespace quadrat
