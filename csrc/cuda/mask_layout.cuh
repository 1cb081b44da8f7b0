// mask_layout: where the tokens are that a mask keeps, in one launch. A warp has a segment of a row. It learns how many
// tokens the segments before it keep from what their warps tell ("decoupled look-back"): their own tokens at once, all
// tokens up to their end when they know. Warps take segments in the order in which they begin to run, so that a warp
// waits for none that has not begun.
#pragma once

#include "kernel.cuh"

namespace quadrat::cuda {

inline constexpr std::uint64_t told_own = std::uint64_t{1} << 62, published_all = std::uint64_t{1} << 63;
inline constexpr std::uint64_t told_number = told_own - 1;

__device__ inline std::uint64_t read_published(const std::uint64_t* published) {
    return *static_cast<const volatile std::uint64_t*>(published);
}

__device__ inline void publish(std::uint64_t* published, std::uint64_t number) {
    *static_cast<volatile std::uint64_t*>(published) = number;
}

// The tokens of all segments before this one.
__device__ inline std::int64_t tokens_before(const std::uint64_t* published, std::int64_t segment, int lane) {
    std::uint64_t sum = 0;
    for (std::int64_t last = segment - 1; last >= 0; last -= warp_lanes) {
        const std::int64_t asked = last - lane;
        std::uint64_t number = 0;
        do {
            number = asked < 0 ? published_all : read_published(published + asked);
        } while (ballot(number == 0) != 0);
        const unsigned complete = ballot((number & published_all) != 0);
        const std::int64_t nearest = complete == 0 ? warp_lanes : lowest_bit(complete);
        sum += sum_of_lanes(lane <= nearest ? number & told_number : 0);
        if (complete != 0) {
            break;
        }
    }
    return static_cast<std::int64_t>(sum);
}

// Calls f(place, word) for the places of a row, a warp at a time: word has a bit for each that is kept.
template <typename T, typename F>
__device__ inline bool for_words(const T* mask, std::int64_t begin, std::int64_t end, int lane, F f) {
    constexpr std::int64_t ahead = 8;
    bool plain = true;
    for (std::int64_t at = begin; at < end; at += ahead * warp_lanes) {
        T value[ahead] = {};
        QUADRAT_UNROLL
        for (std::int64_t k = 0; k < ahead; ++k) {
            const std::int64_t place = at + k * warp_lanes + lane;
            value[k] = place < end ? mask[place] : T{0};
        }
        QUADRAT_UNROLL
        for (std::int64_t k = 0; k < ahead; ++k) {
            plain = plain && value[k] <= 1;
            const unsigned word = ballot(value[k] != 0);
            if (at + k * warp_lanes < end) {
                f(at + k * warp_lanes, word);
            }
        }
    }
    return ballot(!plain) == 0;
}

template <typename T>
__global__ void mask_layout(MaskLayout call) {
    const int lane = static_cast<int>(threadIdx.x % warp_lanes);
    std::uint64_t ticket = 0;
    if (lane == 0) {
        ticket = atomicAdd(reinterpret_cast<unsigned long long*>(&call.state->ticket), 1ULL);
    }
    const auto segment = static_cast<std::int64_t>(first_of_lanes(ticket));
    const std::int64_t per_row = segments_of(call.width);
    if (segment >= call.rows * per_row) {
        return;
    }
    const std::int64_t row = quotient(segment, per_row), part = segment - row * per_row;
    const std::int64_t begin = part * mask_segment, end = clamp(call.width, 0, begin + mask_segment);
    const T* const mask = static_cast<const T*>(call.mask) + row * call.width;

    std::int64_t count = 0;
    const bool plain =
        for_words(mask, begin, end, lane, [&](std::int64_t, unsigned word) { count += count_bits(word); });

    const auto kept = static_cast<std::uint64_t>(count);
    std::uint64_t* const published = call.published;
    if (lane == 0 && segment > 0) {
        publish(published + segment, told_own | kept);
    }
    const std::int64_t first = tokens_before(published, segment, lane);
    const std::int64_t last = first + count;
    if (lane == 0) {
        publish(published + segment, published_all | static_cast<std::uint64_t>(last));
    }

    std::int64_t place = first;
    const unsigned lower = (1U << lane) - 1;
    static_cast<void>(for_words(mask, begin, end, lane, [&](std::int64_t at, unsigned word) {
        if ((word >> lane & 1) != 0) {
            call.indices[place + count_bits(word & lower)] = row * call.width + at + lane;
        }
        place += count_bits(word);
    }));

    std::int64_t row_first = first;
    if (part > 0 && end == call.width) {
        row_first = row == 0 ? 0 : tokens_before(published, row * per_row, lane);
    }
    if (lane != 0) {
        return;
    }
    if (!plain && read_published(&call.state->unusual) == 0) {
        atomicMax(reinterpret_cast<unsigned long long*>(&call.state->unusual), 1ULL);
    }
    if (segment == 0) {
        call.cu_seqlens[0] = 0;
    }
    if (end == call.width) {
        call.cu_seqlens[row + 1] = static_cast<std::int32_t>(last);
        call.lengths[row] = static_cast<std::int32_t>(last - row_first);
        const auto length = static_cast<std::uint64_t>(last - row_first);
        if (length > read_published(&call.state->longest)) {
            atomicMax(reinterpret_cast<unsigned long long*>(&call.state->longest),
                      static_cast<unsigned long long>(length));
        }
        if (row + 1 == call.rows) {
            call.state->total = static_cast<std::uint64_t>(last);
        }
    }
}

}  // namespace quadrat::cuda
