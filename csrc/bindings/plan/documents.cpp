// Padded rows of documents: which one each token is of, where in it the token stands, and what the token sees.
#include <algorithm>
#include <array>

#include "../../kernels/padded_rows.hpp"
#include "execute.hpp"

namespace quadrat {

// As row_numbers, but for tokens that a mask leaves out: the lengths of documents say it, else the mask's own numbers;
// without either a row is one document.
Status Execution::number_rows(const Step& step, std::int64_t extent, std::int64_t* out) const {
    const Column& column = columns_.at(step.index);
    if (column.max_length > extent) {
        return {Code::row_too_long};
    }
    if (layout_.seq_lengths < 0) {
        return is_mask(step) ? columns_.pad(step.index, out, Kind::int64, extent, layout_.side, py::int_(0))
                             : columns_.attention_mask(step.index, out, Kind::int64, extent, layout_.side);
    }
    const std::vector<std::int64_t>& counts = columns_.at(static_cast<std::size_t>(layout_.seq_lengths)).lengths;
    const std::int64_t* length = documents_.data();
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const std::int64_t before = layout_.side == Side::left ? extent - column.lengths.at(i) : 0;
        std::int64_t* place = std::fill_n(out, before, std::int64_t{0});
        for (std::int64_t number = 1; number <= counts[i]; ++number) {
            place = std::fill_n(place, *length++, number);
        }
        out += extent;
        std::fill(place, out, std::int64_t{0});
    }
    return {};
}

Status Execution::number_tokens(const Step& step, std::int64_t extent, std::int64_t* out) const {
    Status status = number_rows(step, extent, out);
    if (status && layout_.seq_lengths >= 0 && is_mask(step)) {
        std::vector<std::int64_t> mask(static_cast<std::size_t>(columns_.count(step.index) * extent));
        status = columns_.pad(step.index, mask.data(), Kind::int64, extent, layout_.side, py::int_(0));
        const auto left_out = [](std::int64_t number, std::int64_t kept) { return kept == 0 ? 0 : number; };
        std::transform(out, out + static_cast<std::ptrdiff_t>(mask.size()), mask.begin(), out, left_out);
    }
    return status;
}

Status Execution::write_row_positions(const Step& step, std::int64_t extent, std::int64_t* out) const {
    const Status status = number_rows(step, extent, out);
    for (std::int64_t rows = columns_.count(step.index); status && rows > 0; --rows) {
        std::int64_t document = 0, position = 0;
        for (const std::int64_t* const end = out + extent; out < end; ++out) {
            if (*out != 0 && *out != document) {
                document = *out;
                position = 0;
            }
            *out = *out != 0 || layout_.continue_positions ? position++ : 0;
        }
    }
    return status;
}

Status Execution::write_row_mask(const Step& step, std::int64_t extent, void* out) const {
    const py::tuple how = plan_.values[step.name];
    std::vector<std::int64_t> documents(static_cast<std::size_t>(columns_.count(step.index) * extent));
    const Status status = number_tokens(step, extent, documents.data());
    const std::array<std::uint64_t, 2> values{how[2].cast<std::uint64_t>(), how[3].cast<std::uint64_t>()};
    return status ? document_mask(documents.data(), columns_.count(step.index), extent, how[1].cast<bool>(),
                                  item_size(step.kind), values.data(), out)
                  : status;
}

}  // namespace quadrat
