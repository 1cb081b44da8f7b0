// Padded rows of documents: where in its document each token stands.
#include <numeric>

#include "execute.hpp"

namespace quadrat {

// Without lengths of documents, a row is one.
Status Execution::write_row_positions(const Step& step, std::int64_t extent, std::int64_t* out) const {
    const Column& column = columns_.at(step.index);
    if (column.max_length > extent) {
        return {Code::row_too_long};
    }
    const bool whole = layout_.seq_lengths < 0;
    const Column& counted = columns_.at(whole ? step.index : static_cast<std::size_t>(layout_.seq_lengths));
    const std::int64_t* length = sequences(column).data();
    for (std::size_t i = 0; i < column.lengths.size(); ++i) {
        std::int64_t next = 0;  // after the last token
        const auto pad = [&](std::int64_t count) {
            for (; count > 0; --count) {
                *out++ = layout_.continue_positions ? next++ : 0;
            }
        };
        const std::int64_t gap = extent - column.lengths[i], before = layout_.side == Side::left ? gap : 0;
        pad(before);
        for (std::int64_t left = whole ? 1 : counted.lengths.at(i); left > 0; --left, ++length) {
            std::iota(out, out + *length, std::int64_t{0});
            out += *length;
            next = *length;
        }
        pad(gap - before);
    }
    return {};
}

}  // namespace quadrat
