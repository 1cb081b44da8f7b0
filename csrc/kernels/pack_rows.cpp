#include "pack_rows.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bit_tree.hpp"
#include "order_rows.hpp"

namespace quadrat {
namespace {

constexpr std::int64_t none = BitTree::none;

// Rows of one length that some packs next to each other got, as many each. Most packs of many are alike: they are
// looked for once, and what each of them holds follows from the placements one upon the other.
struct Placement {
    std::int64_t base;       // the first of the packs
    std::int64_t first;      // the first of those that got nothing after it
    std::int64_t packs;      // how many got nothing after it
    std::int64_t below;      // the placement before it in these packs, or `none`
    std::int64_t first_row;  // its rows begin here in the order of rows
    std::int64_t each;       // rows that a pack got
    std::int64_t total;      // rows in a pack, with all before
    std::int64_t next;       // in the queue of packs with equal room
};

constexpr std::int64_t cold = 32;  // steps, as `Watch` counts them, to memory that is not in the caches

// Packs by the room that they have for tokens and for counts: packs of equal rooms wait in a queue, a ring of
// placements of which only the last is kept. A room is a number: that for counts, times `width`, and that for tokens.
struct PacksByRoom {
    static std::int64_t scratch(std::int64_t rows, std::int64_t max_length, std::int64_t most) {
        constexpr auto words = static_cast<std::int64_t>(sizeof(Placement) / sizeof(std::int64_t));
        const std::int64_t size = (max_length + 1) * (most + 1);
        return BitTree::words(size) + size + words * rows;
    }

    std::int64_t width;  // the tokens of a pack, and one more
    std::int64_t most;   // the count of a pack
    std::int64_t* memory;
    Watch& watch;
    BitTree rooms{width * (most + 1), reinterpret_cast<std::uint64_t*>(memory)};
    std::int64_t* last = memory + BitTree::words(width * (most + 1));  // by room, where a pack has it
    Placement* placements = reinterpret_cast<Placement*>(last + width * (most + 1));
    std::int64_t packs = 0, placed = 0;

    // Places `rows` rows of this length and count, from first_row on. As long as a pack has room for one more, none has
    // less.
    void place(std::int64_t length, std::int64_t count, std::int64_t first_row, std::int64_t rows) {
        while (rows > 0) {
            std::int64_t room = find(length, count);
            const bool opens = room == none;
            room = opens ? width * (most + 1) - 1 : room;
            const std::int64_t by_length = length == 0 ? rows : room % width / length;
            const std::int64_t each = std::min({rows, by_length, count == 0 ? rows : room / width / count});
            const std::int64_t wanted = rows / each;
            const Placement target = opens ? open(wanted) : take(room, wanted);
            add({target.first, target.first, target.packs, target.below, first_row, each, target.total + each, none},
                room - each * (count * width + length), length == 0 && count == 0);
            first_row += target.packs * each;
            rows -= target.packs * each;
            watch.after(cold);
        }
    }

    // The least room for tokens that suffices, and of those with it the least for counts; or `none`.
    std::int64_t find(std::int64_t length, std::int64_t count) const {
        std::int64_t best = none;
        for (std::int64_t counts = count; counts <= most;) {
            const std::int64_t room = rooms.at_least(counts * width + length);
            if (room == none) {
                break;
            }
            const bool fits = room % width >= length;
            best = fits && (best == none || room % width < best % width) ? room : best;
            counts = room / width + (fits ? 1 : 0);
        }
        return best;
    }

    // Writes the rows of each pack, from the first that was placed to the last.
    void write(const std::int64_t* order, std::int64_t* rows, std::int64_t* offsets) const {
        offsets[0] = 0;
        const Span<const Placement> all{placements, placed};
        for (const Placement& placement : all) {
            std::fill_n(offsets + placement.first + 1, placement.packs, placement.total);
        }
        for (std::int64_t pack = 0; pack < packs; ++pack) {
            offsets[pack + 1] += offsets[pack];
        }
        for (const Placement& placement : all) {
            for (std::int64_t pack = placement.first; pack < placement.first + placement.packs; ++pack) {
                write_pack(placement, pack, order, rows + offsets[pack + 1]);
                watch.after(cold * placement.total);
            }
        }
    }

    void write_pack(const Placement& newest, std::int64_t pack, const std::int64_t* order, std::int64_t* end) const {
        for (const Placement* at = &newest;; at = placements + at->below) {
            const std::int64_t* const first = order + at->first_row + (pack - at->base) * at->each;
            end = std::copy_backward(first, first + at->each, end);
            if (at->below == none) {
                return;
            }
        }
    }

    Placement open(std::int64_t wanted) {
        const std::int64_t first = packs;
        packs += wanted;
        return {first, first, wanted, none, 0, 0, 0, none};
    }

    // The packs of this room that have had it for the longest time, as many as are alike and wanted.
    Placement take(std::int64_t room, std::int64_t wanted) {
        Placement& newest = placements[last[room]];
        const std::int64_t number = newest.next;
        Placement& oldest = placements[number];
        const Placement taken{oldest.base,  oldest.first, std::min(wanted, oldest.packs), number, 0, 0,
                              oldest.total, none};
        oldest.first += taken.packs;
        oldest.packs -= taken.packs;
        if (oldest.packs == 0) {
            if (number == last[room]) {
                rooms.remove(room);
            } else {
                newest.next = oldest.next;
            }
        }
        return taken;
    }

    // stays: these packs have had this room before, and remain the first of the queue.
    void add(const Placement& placement, std::int64_t room, bool stays) {
        const std::int64_t number = placed++;
        placements[number] = placement;
        placements[number].next = number;
        if (!rooms.has(room)) {
            rooms.insert(room);
            last[room] = number;
            return;
        }
        std::swap(placements[number].next, placements[last[room]].next);
        last[room] = stays ? last[room] : number;
    }
};

// The room of each pack, and the most of each sixteen, and so on up. A pack that holds nothing has all its room.
struct PacksInOrder {
    static constexpr std::int64_t children = 16;
    Watch& watch;
    std::int64_t* levels[16] = {};  // 16^16 packs
    int count = 0;
    std::int64_t packs = 0;

    static std::int64_t scratch(std::int64_t nodes) {
        std::int64_t total = 0;
        do {
            nodes = (nodes + children - 1) / children;
            total += nodes * children;
        } while (nodes > 1);
        return total;
    }

    PacksInOrder(std::int64_t most, std::int64_t max_length, std::int64_t* memory, Watch& looks) : watch(looks) {
        do {
            const std::int64_t nodes = (most + children - 1) / children;
            std::fill(memory, memory + most, max_length);
            std::fill(memory + most, memory + nodes * children, none);
            levels[count++] = memory;
            memory += nodes * children;
            most = nodes;
        } while (most > 1);
    }

    // Places rows number `first` to before `end`, all of this length.
    void place(std::int64_t length, std::int64_t first, std::int64_t end, std::int64_t* pack_of) {
        for (std::int64_t node = 0; first < end; ++node) {
            first = fill(count - 1, node, length, first, end, pack_of);
        }
    }

    // Places as many of these rows as fit the packs below a node, one pack after the other. Returns the first row left.
    std::int64_t fill(int level, std::int64_t node, std::int64_t length, std::int64_t first, std::int64_t end,
                      std::int64_t* pack_of) {
        std::int64_t& room = levels[level][node];
        if (first == end || room < length) {
            return first;
        }
        if (level == 0) {
            const std::int64_t each = length == 0 ? end - first : std::min(end - first, room / length);
            std::fill(pack_of + first, pack_of + first + each, node);
            packs = std::max(packs, node + 1);
            room -= each * length;
            return first + each;
        }
        watch.after(cold);
        const std::int64_t* const below = levels[level - 1] + node * children;
        for (std::int64_t child = 0; child < children; ++child) {
            first = fill(level - 1, node * children + child, length, first, end, pack_of);
        }
        room = *std::max_element(below, below + children);
        return first;
    }
};

// pack_of[i] is the pack of order[i]. Writes the rows of each pack next to each other. cursor: room for all packs.
void group(Span<std::int64_t> order, const std::int64_t* pack_of, std::int64_t packs, std::int64_t* cursor,
           std::int64_t* rows, std::int64_t* offsets, Watch& watch) {
    std::fill(offsets, offsets + packs + 1, 0);
    watch.stretches(order.size, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            ++offsets[pack_of[i] + 1];
        }
    });
    for (std::int64_t pack = 0; pack < packs; ++pack) {
        cursor[pack] = offsets[pack];
        offsets[pack + 1] += offsets[pack];
    }
    watch.stretches(order.size, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            rows[cursor[pack_of[i]]++] = order[i];
        }
    });
}

// Calls place(length, first, end) for the rows of each length in an order by length. Few of them are looked at.
template <typename Put>
void for_each_length(Span<std::int64_t> order, const std::int64_t* lengths, const Put& place) {
    for (std::int64_t first = 0, end = 0; first < order.size; first = end) {
        const std::int64_t length = lengths[order[first]];
        const auto is_same = [&](std::int64_t row) { return lengths[row] == length; };
        std::int64_t most = 1;
        while (first + most < order.size && is_same(order[first + most])) {
            most *= 2;
        }
        const std::int64_t* const from = order.data + first;
        end = std::partition_point(from + most / 2, from + std::min(most, order.size - first), is_same) - order.data;
        place(length, first, end);
    }
}

std::int64_t pack_in_order(Span<const std::int64_t> lengths, std::int64_t max_length, const SecondLimit& second,
                           std::int64_t* rows, std::int64_t* offsets, Watch& watch) {
    std::iota(rows, rows + lengths.size, std::int64_t{0});
    offsets[0] = 0;
    std::int64_t packs = 0, room = 0, counts = 0;
    watch.stretches(lengths.size, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const std::int64_t count = second.counts == nullptr ? 0 : second.counts[row];
            if (packs == 0 || lengths[row] > room || count > counts) {
                offsets[packs++] = row;
                room = max_length;
                counts = second.most;
            }
            room -= lengths[row];
            counts -= count;
        }
    });
    offsets[packs] = lengths.size;
    return packs;
}

}  // namespace

std::int64_t pack_rows_scratch(std::int64_t rows, std::int64_t max_length, Fit fit, const SecondLimit& second) {
    const bool counted = second.counts != nullptr;
    const bool is_sound = max_length >= 1 && second.most >= 0 && !(counted && fit == Fit::first);
    if (!is_sound || (fit == Fit::best && max_length > most_in_pack) ||
        (fit == Fit::best && counted && second.most >= most_in_pack / (max_length + 1))) {
        return -1;
    }
    if (fit == Fit::in_order) {
        return 0;
    }
    return fit == Fit::best ? rows + PacksByRoom::scratch(rows, max_length, counted ? second.most : 0)
                            : 3 * rows + PacksInOrder::scratch(rows);
}

Status pack_rows(Span<const std::int64_t> lengths, std::int64_t max_length, Fit fit, const SecondLimit& second,
                 std::int64_t* scratch, std::int64_t* rows, std::int64_t* offsets, std::int64_t* packs, Watch& watch) {
    const bool counted = second.counts != nullptr;
    if (pack_rows_scratch(lengths.size, max_length, fit, second) < 0) {
        return {Code::bad_argument};
    }
    for (std::int64_t row = 0; row < lengths.size; ++row) {
        const std::int64_t count = counted ? second.counts[row] : 0;
        if (lengths[row] < 0 || lengths[row] > max_length || count < 0 || count > second.most) {
            return {lengths[row] < 0 || count < 0 ? Code::bad_start : Code::row_too_long, row};
        }
    }
    if (fit == Fit::in_order) {
        *packs = pack_in_order(lengths, max_length, second, rows, offsets, watch);
        return {};
    }
    const Span<std::int64_t> order{scratch, lengths.size};
    std::int64_t* const rest = order.end();
    std::iota(order.begin(), order.end(), std::int64_t{0});
    sort_rows(lengths.data, order, rows, watch);
    if (fit == Fit::best) {
        PacksByRoom by_room{max_length + 1, counted ? second.most : 0, rest, watch};
        for_each_length(order, lengths.data, [&](std::int64_t length, std::int64_t first, std::int64_t end) {
            while (first < end) {
                const std::int64_t count = counted ? second.counts[order[first]] : 0;
                std::int64_t next = counted ? first + 1 : end;  // the first row of another count
                while (next < end && second.counts[order[next]] == count) {
                    ++next;
                }
                by_room.place(length, count, first, next - first);
                first = next;
            }
        });
        by_room.write(order.data, rows, offsets);
        *packs = by_room.packs;
        return {};
    }
    std::int64_t *const pack_of = rest, *const cursor = pack_of + order.size, *const tree = cursor + order.size;
    PacksInOrder in_order(order.size, max_length, tree, watch);
    for_each_length(order, lengths.data, [&](std::int64_t length, std::int64_t first, std::int64_t end) {
        in_order.place(length, first, end, pack_of);
    });
    *packs = in_order.packs;
    group(order, pack_of, *packs, cursor, rows, offsets, watch);
    return {};
}

}  // namespace quadrat
