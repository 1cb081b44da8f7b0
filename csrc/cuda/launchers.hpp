// How each kernel is launched, on a GPU and in the emulation alike. A queue runs the blocks: it has `most_blocks`,
// `piece_log`, run(kernel, shape, call), clear(address, bytes), and the Errors `success` and `too_many_blocks`.
#pragma once

#include <type_traits>
#include <utility>

#include "../kernels/bytes.hpp"
#include "causal_labels.cuh"
#include "flatten_columns.cuh"
#include "mask_layout.cuh"
#include "pad_columns.cuh"
#include "philox_mask.cuh"
#include "row_keys.cuh"
#include "shape.hpp"
#include "take_tokens.cuh"
#include "unpad.cuh"

namespace quadrat::cuda {

template <int most>
auto kernel_of(const SomeColumns<most>&) {
    return pad_columns<most>;
}
inline auto kernel_of(const FlattenColumns&) { return flatten_columns; }
inline auto kernel_of(const Unpad&) { return unpad; }
inline auto kernel_of(const CausalLabels&) { return causal_labels; }
inline auto kernel_of(const RowKeys&) { return row_keys; }
inline auto kernel_of(const PhiloxMask& call) { return call.pads ? philox_mask<true> : philox_mask<false>; }

inline auto kernel_of(const MaskLayout& call) {
    const auto kernel = [](auto item) { return mask_layout<decltype(item)>; };
    return with_item(call.item, kernel, [&] { return kernel(std::uint64_t{}); });
}
inline auto kernel_of(const TakeTokens& call) {
    const auto kernel = [](auto item) { return take_tokens<decltype(item)>; };
    return with_item(word_of_tokens(call), kernel, [&] { return kernel(Word{}); });
}

inline std::int64_t plan(const MaskLayout& call, int) {
    const std::int64_t segments = call.rows * segments_of(call.width);
    return segments == 0 ? 0 : (segments * warp_lanes - 1) / piece_threads + 1;
}

// Most kernels have a plan, which says how many blocks there are, all along x; the others have a thread per element.
template <typename Call, typename = void>
inline constexpr bool has_plan = false;
template <typename Call>
inline constexpr bool has_plan<Call, std::void_t<decltype(plan(std::declval<Call&>(), 0))>> = true;

template <typename Queue, typename Call>
typename Queue::Error launch_on(const Queue& queue, const Call& call) {
    if constexpr (std::is_same_v<Call, PadColumns>) {
        if (call.count == 1) {
            return launch_on(queue, SomeColumns<1>{call.rows, 1, {call.columns[0]}});
        }
    }
    if (idle(call)) {
        return Queue::success;  // a grid without blocks is an error
    }
    auto cleared = Queue::success;
    if constexpr (std::is_same_v<Call, RowKeys>) {
        cleared = queue.clear(call.out, static_cast<std::size_t>(call.rows) * sizeof *call.out);
    } else if constexpr (std::is_same_v<Call, MaskLayout>) {
        const auto published = static_cast<std::size_t>(call.rows * segments_of(call.width)) * sizeof *call.published;
        cleared = queue.clear(call.state, sizeof *call.state + published);
    }
    if (cleared != Queue::success) {
        return cleared;
    }
    if constexpr (has_plan<Call>) {
        Call shared = call;
        const std::int64_t blocks = plan(shared, queue.piece_log);
        if (blocks > most_piece_blocks) {
            return Queue::too_many_blocks;  // more rows than memory holds offsets
        }
        const Shape shape{piece_threads, 1, static_cast<unsigned>(blocks), 1};
        return blocks == 0 ? Queue::success : queue.run(kernel_of(shared), shape, shared);
    } else {
        return queue.run(kernel_of(call), launch_shape(call.rows, typical_width(call), queue.most_blocks), call);
    }
}

}  // namespace quadrat::cuda
