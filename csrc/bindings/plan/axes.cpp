// Rows of any shapes, padded along some of their axes: blocks of the output.
#include <algorithm>
#include <numeric>

#include "../../kernels/bytes.hpp"
#include "../input/python_number.hpp"
#include "execute.hpp"

namespace quadrat {
namespace {

std::int64_t product(const Trailing& extents) {
    return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

// How far apart the elements of each axis of an array of this shape are.
Trailing steps_of(const Trailing& shape) {
    Trailing steps(shape.size(), 1);
    for (std::size_t axis = shape.size(); axis-- > 1;) {
        steps[axis - 1] = steps[axis] * shape[axis];
    }
    return steps;
}

}  // namespace

struct Execution::Blocks {
    std::vector<Trailing> rows;  // their shapes; of a mask, the padded axes alone
    Trailing extents;            // that all rows are padded to
    std::size_t joined = 0;      // the axis that becomes that of the rows; 0: none does
    bool left = false;           // whether padding comes first
    Trailing shape{0};           // of the output, where the status is ok
    Status status;
};

Execution::Blocks Execution::blocks_of(const Step& step) const {
    const py::tuple how = plan_.values[step.name];
    const Column& column = columns_.at(step.index);
    Blocks blocks;
    if (column.rows.empty()) {
        blocks.status = {Code::bad_argument};
        return blocks;
    }
    blocks.extents = column.shape(0);
    const auto dimensions = static_cast<std::int64_t>(blocks.extents.size());
    std::vector<bool> pads(blocks.extents.size());
    std::size_t last = 0;
    for (const py::handle axis : py::tuple(how[1])) {
        const auto number = axis.cast<std::int64_t>(), place = number < 0 ? number + dimensions : number;
        if (place < 0 || place >= dimensions) {
            blocks.status = {Code::bad_argument, 0};
            return blocks;
        }
        last = static_cast<std::size_t>(place);
        pads[last] = true;
    }
    for (std::size_t i = 0; i < column.rows.size(); ++i) {
        blocks.rows.push_back(column.shape(i));
        const Trailing& shape = blocks.rows.back();
        for (std::size_t axis = 0; axis < pads.size(); ++axis) {
            if (shape.size() != pads.size() || (!pads[axis] && shape[axis] != blocks.extents[axis])) {
                blocks.status = {Code::uneven, static_cast<std::int64_t>(i)};
                return blocks;
            }
            blocks.extents[axis] = std::max(blocks.extents[axis], shape[axis]);
        }
    }
    const std::vector<std::int64_t>& tokens = columns_.at(how[2].cast<std::size_t>()).lengths;
    const auto is_as_long = [&](const Trailing& shape, std::int64_t length) { return shape[last] == length; };
    if (std::count(pads.begin(), pads.end(), true) == 1 &&
        std::equal(blocks.rows.begin(), blocks.rows.end(), tokens.begin(), tokens.end(), is_as_long)) {
        blocks.extents[last] = layout_.width;
        blocks.left = layout_.side == Side::left;
    }
    for (std::size_t axis = pads.size(); axis-- > 0;) {
        if (step.action == Action::axes_mask && !pads[axis]) {
            for (Trailing& shape : blocks.rows) {
                shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
            }
            blocks.extents.erase(blocks.extents.begin() + static_cast<std::ptrdiff_t>(axis));
        } else if (axis > 0 && !pads[axis] && blocks.extents[axis] == 1) {
            blocks.joined = axis;
        }
    }
    blocks.shape = blocks.extents;
    if (blocks.joined == 0) {
        blocks.shape.insert(blocks.shape.begin(), 1);
    }
    blocks.shape[blocks.joined] = static_cast<std::int64_t>(blocks.rows.size());
    return blocks;
}

Trailing Execution::shape_along_axes(const Step& step) const { return blocks_of(step).shape; }

Status Execution::write_blocks(const Step& step, void* out) const {
    const Blocks blocks = blocks_of(step);
    if (!blocks.status) {
        return blocks.status;
    }
    Trailing steps = steps_of(blocks.shape);
    const std::int64_t apart = steps[blocks.joined];
    if (blocks.joined == 0) {
        steps.erase(steps.begin());
    }
    std::vector<std::int64_t> start;
    bool gaps = false;
    for (const Trailing& row : blocks.rows) {
        std::int64_t first = static_cast<std::int64_t>(start.size()) * apart;
        for (std::size_t axis = 0; axis < row.size(); ++axis) {
            first += blocks.left ? (blocks.extents[axis] - row[axis]) * steps[axis] : 0;
        }
        gaps = gaps || row != blocks.extents;
        start.push_back(first);
    }
    const std::int64_t size = product(blocks.shape);
    const bool is_mask = step.action == Action::axes_mask;
    std::uint64_t fill = 0;
    if (gaps && !is_mask && !decode_number(py::tuple(plan_.values[step.name])[0].ptr(), step.kind, &fill)) {
        return {Code::out_of_range};
    }
    if (gaps) {
        find_fill(item_size(step.kind))(out, size, &fill);
    }
    if (!is_mask) {
        return columns_.place_blocks(step.index, span_of(start), steps, out, step.kind, size);
    }
    const std::uint8_t one = 1;
    Columns ones;
    ones.columns.emplace_back(0);
    for (const Trailing& row : blocks.rows) {
        ones.columns[0].rows.push_back({&one, product(row), 0, Kind::uint8});
        ones.columns[0].shapes.push_back(row);
    }
    return ones.place_blocks(0, span_of(start), steps, out, step.kind, size);
}

}  // namespace quadrat
