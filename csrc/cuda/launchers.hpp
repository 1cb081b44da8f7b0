// How each kernel is launched, on a GPU and in the emulation alike. A queue runs the blocks: it has `most_blocks` and
// `piece_log` (see shape.hpp), run(kernel, shape, call), clear(address, bytes), an Error, and its values `success` and
// `too_many_blocks`.
#pragma once

#include "causal_labels.cuh"
#include "copy_rows.cuh"
#include "flatten_columns.cuh"
#include "pad_columns.cuh"
#include "pad_masked.cuh"
#include "philox_mask.cuh"
#include "row_keys.cuh"
#include "separate_rows.cuh"
#include "shape.hpp"
#include "unpad.cuh"

namespace quadrat::cuda {

// The kernels with a thread per element.
template <typename Queue, typename Call>
typename Queue::Error start(const Queue& queue, void (*kernel)(Call), const Call& call) {
    if (call.rows == 0) {
        return Queue::success;  // a grid without blocks is an error
    }
    return queue.run(kernel, launch_shape(call.rows, typical_width(call), queue.most_blocks), call);
}

// The kernels that write rows in pieces: one output, or several.
template <typename Queue, typename Call>
typename Queue::Error start_pieces(const Queue& queue, void (*kernel)(Call), Call call) {
    const std::int64_t blocks = idle(call) ? 0 : plan(call, queue.piece_log);
    if (blocks == 0) {
        return Queue::success;
    }
    if (blocks > most_piece_blocks) {
        return Queue::too_many_blocks;  // more rows than memory holds offsets
    }
    return queue.run(kernel, Shape{piece_threads, 1, static_cast<unsigned>(blocks), 1}, call);
}

template <typename Queue>
auto launch_on(const Queue& queue, const CopyRows& call) {
    return start_pieces(queue, copy_rows, call);
}

template <typename Queue>
auto launch_on(const Queue& queue, const PadColumns& call) {
    if (call.count == 1) {
        return start_pieces(queue, pad_columns<1>, SomeColumns<1>{call.rows, 1, {call.columns[0]}});
    }
    return start_pieces(queue, pad_columns<most_columns>, call);
}

template <typename Queue>
auto launch_on(const Queue& queue, const FlattenColumns& call) {
    return start_pieces(queue, flatten_columns, call);
}

template <typename Queue>
auto launch_on(const Queue& queue, const Unpad& call) {
    return start_pieces(queue, unpad, call);
}

template <typename Queue>
auto launch_on(const Queue& queue, const SeparateRows& call) {
    switch (call.item) {
        case 1:
            return start(queue, separate_rows<std::uint8_t>, call);
        case 2:
            return start(queue, separate_rows<std::uint16_t>, call);
        case 4:
            return start(queue, separate_rows<std::uint32_t>, call);
        default:
            return start(queue, separate_rows<std::uint64_t>, call);
    }
}

template <typename Queue>
auto launch_on(const Queue& queue, const CausalLabels& call) {
    return start(queue, causal_labels, call);
}

template <typename Queue>
auto launch_on(const Queue& queue, const RowKeys& call) {
    const auto error = queue.clear(call.out, static_cast<std::size_t>(call.rows) * sizeof *call.out);
    return error == Queue::success ? start(queue, row_keys, call) : error;
}

template <typename Queue>
auto launch_on(const Queue& queue, const PhiloxMask& call) {
    return start(queue, philox_mask, call);
}

template <typename Queue>
auto launch_on(const Queue& queue, const PadMasked& call) {
    return start(queue, pad_masked, call);
}

}  // namespace quadrat::cuda
