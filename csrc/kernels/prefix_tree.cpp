#include "prefix_tree.hpp"

#include <algorithm>

#include "bytes.hpp"

namespace quadrat {
namespace {

constexpr std::int64_t none = -1, root = 0;

// First a part of a row that others may share, then a node of the result.
struct Part {
    std::int64_t begin;   // the cell of its first token in the first row that has it
    std::int64_t length;  // in tokens
    std::int64_t end;     // the tokens from the beginning of its rows to its end
    std::int64_t parent;
    std::int64_t above = none;  // the last node of the result that ends where it ends or before; none: not decided
    std::int64_t next = none;   // sibling, once it is a node
    std::int64_t first = none;  // children
    std::int64_t last = none;
    std::int64_t number = none;  // in the result
};

constexpr auto part_words = static_cast<std::int64_t>(sizeof(Part) / sizeof(std::int64_t));

// Of each row at most a part and another one that it divides, and a node that it shares with none; and the root.
std::int64_t most_parts(std::int64_t rows) { return 3 * rows + 1; }

// Places for parts by their first tokens: a power of two, of which at most half are taken.
std::int64_t table_size(std::int64_t rows) {
    std::int64_t size = 4;
    while (size < 4 * rows) {
        size *= 2;
    }
    return size;
}

// How many numbers are the same from the first on.
std::int64_t count_same(const std::int64_t* a, const std::int64_t* b, std::int64_t size) {
    return std::mismatch(a, a + size, b).first - a;
}

class Tree {
public:
    Tree(const std::int64_t* ids, const std::int64_t* positions, std::int64_t rows, std::int64_t* scratch)
        : ids_(ids),
          positions_(positions),
          parts_(reinterpret_cast<Part*>(scratch)),
          ends_(scratch + most_parts(rows) * part_words),
          table_(ends_ + rows),
          mask_(static_cast<std::uint64_t>(table_size(rows) - 1)) {
        std::fill_n(table_, table_size(rows), none);
        add({0, 0, 0, none, root});
    }

    void insert(std::int64_t row, std::int64_t begin, std::int64_t end) {
        std::int64_t parent = root;
        for (std::int64_t at = begin; at < end;) {
            std::int64_t* const place = find(parent, at);
            if (*place == none) {
                *place = add({at, end - at, end - begin, parent});
                parent = *place;
                break;
            }
            const std::int64_t number = *place, same = same_from(parts_[number], at, end);
            at += same;
            parent = number;
            if (same < parts_[number].length) {
                parent = divide(number, same);
                *place = parent;
                *find(parent, parts_[number].begin) = number;
            }
        }
        ends_[row] = parent;
    }

    // Makes the parts of a row nodes where they are long enough; shorter ones go to those that follow.
    // begin: the cell of its first token. Returns how many it has.
    std::int64_t decide(std::int64_t row, std::int64_t begin, std::int64_t shortest) {
        const std::int64_t length = parts_[ends_[row]].end;
        std::int64_t down = none;
        for (std::int64_t up = ends_[row]; parts_[up].above == none; up = parts_[up].parent) {
            parts_[up].next = down;
            down = up;
        }
        while (down != none) {
            Part& part = parts_[down];
            const std::int64_t above = parts_[part.parent].above, cells = part.end - parts_[above].end, here = down;
            down = part.next;
            part.next = none;
            part.above = above;
            if (cells >= shortest) {
                part.begin -= cells - part.length;
                part.length = cells;
                part.above = here;
                put_below(above, here);
            }
        }
        const std::int64_t above = parts_[ends_[row]].above, at = parts_[above].end;
        ends_[row] = above;
        if (at < length) {
            ends_[row] = add({begin + at, length - at, length, above});
            put_below(above, ends_[row]);
        }
        return length;
    }

    PrefixTotals write_nodes(PrefixNode* nodes, std::int64_t* cell_of_token) {
        PrefixTotals totals;
        for (std::int64_t at = parts_[root].first; at != none; at = following(at)) {
            Part& part = parts_[at];
            part.number = totals.nodes++;
            nodes[part.number] = {totals.tokens, part.length, parts_[part.parent].number, part.end - part.length};
            count_up(part.begin, part.length, cell_of_token + totals.tokens);
            totals.tokens += part.length;
        }
        return totals;
    }

    // Writes the tokens of a row's cells; returns how many there are.
    std::int64_t write_row(std::int64_t row, const PrefixNode* nodes, std::int64_t* tokens) const {
        for (std::int64_t at = ends_[row]; at != root; at = parts_[at].parent) {
            const Part& part = parts_[at];
            count_up(nodes[part.number].start, part.length, tokens + part.end - part.length);
        }
        return parts_[ends_[row]].end;
    }

private:
    std::int64_t add(const Part& part) {
        parts_[size_] = part;
        return size_++;
    }

    // The part above it gets the first tokens, and its place.
    std::int64_t divide(std::int64_t number, std::int64_t tokens) {
        Part& part = parts_[number];
        const std::int64_t upper = add({part.begin, tokens, part.end - part.length + tokens, part.parent});
        part.begin += tokens;
        part.length -= tokens;
        part.parent = upper;
        return upper;
    }

    void put_below(std::int64_t above, std::int64_t number) {
        Part& parent = parts_[above];
        parts_[number].parent = above;
        (parent.last == none ? parent.first : parts_[parent.last].next) = number;
        parent.last = number;
    }

    std::int64_t following(std::int64_t at) const {
        if (parts_[at].first != none) {
            return parts_[at].first;
        }
        while (at != root && parts_[at].next == none) {
            at = parts_[at].parent;
        }
        return parts_[at].next;
    }

    // Where the table has the part below `parent` that begins with the token of a cell, or has room for it.
    std::int64_t* find(std::int64_t parent, std::int64_t cell) {
        constexpr std::uint64_t odd[] = {0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9};
        std::uint64_t key =
            static_cast<std::uint64_t>(parent) * odd[0] ^ static_cast<std::uint64_t>(ids_[cell]) * odd[1];
        if (positions_ != nullptr) {
            key ^= static_cast<std::uint64_t>(positions_[cell]) * odd[2];
        }
        key = (key ^ key >> 32) * odd[0];
        for (std::uint64_t at = key >> 32 & mask_;; at = (at + 1) & mask_) {
            if (table_[at] == none || starts_with(parts_[table_[at]], parent, cell)) {
                return table_ + at;
            }
        }
    }

    bool starts_with(const Part& part, std::int64_t parent, std::int64_t cell) const {
        return part.parent == parent && ids_[part.begin] == ids_[cell] &&
               (positions_ == nullptr || positions_[part.begin] == positions_[cell]);
    }

    // How many tokens a part has in common with a row, from a cell on; the first is the same.
    std::int64_t same_from(const Part& part, std::int64_t cell, std::int64_t end) const {
        const std::int64_t a = part.begin + 1, b = cell + 1, most = std::min(part.length, end - cell) - 1;
        const std::int64_t same = count_same(ids_ + a, ids_ + b, most);
        return 1 + (positions_ == nullptr ? same : count_same(positions_ + a, positions_ + b, same));
    }

    const std::int64_t* ids_;
    const std::int64_t* positions_;
    Part* parts_;
    std::int64_t* ends_;  // of each row, the part that it ends with, later the node
    std::int64_t* table_;
    std::uint64_t mask_;
    std::int64_t size_ = 0;
};

}  // namespace

std::int64_t prefix_tree_scratch(std::int64_t rows) {
    return rows < 0 ? -1 : most_parts(rows) * part_words + rows + table_size(rows);
}

Status prefix_tree(Span<const std::int64_t> ids, const std::int64_t* positions, Span<const std::int32_t> offsets,
                   std::int64_t shortest, std::int64_t* scratch, PrefixNode* nodes, std::int64_t* token_of_cell,
                   std::int64_t* cell_of_token, PrefixTotals* totals) {
    const std::int64_t rows = offsets.size - 1;
    if (rows < 0 || shortest < 1) {
        return {Code::bad_argument};
    }
    Tree tree(ids.data, positions, rows, scratch);
    std::int64_t begin = offsets[0];
    if (begin != 0) {
        return {Code::bad_start, 0};
    }
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t end = offsets[row + 1];
        if (end < begin || end > ids.size) {
            return {Code::bad_start, row};
        }
        tree.insert(row, begin, end);
        begin = end;
    }
    if (begin != ids.size) {
        return {Code::bad_start, rows};
    }
    for (std::int64_t row = 0, cell = 0; row < rows; ++row) {
        cell += tree.decide(row, cell, shortest);
    }
    *totals = tree.write_nodes(nodes, cell_of_token);
    for (std::int64_t row = 0, cell = 0; row < rows; ++row) {
        cell += tree.write_row(row, nodes, token_of_cell + cell);
    }
    return {};
}

}  // namespace quadrat
