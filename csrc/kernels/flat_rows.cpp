#include "flat_rows.hpp"

#include <cstring>
#include <limits>

#include "bytes.hpp"

namespace quadrat {

Status position_ids(Span<const std::int64_t> lengths, std::int64_t start, std::int64_t* out, std::int64_t out_size) {
    std::int64_t last = lengths.size - 1;  // of the rows that have tokens
    while (last >= 0 && lengths[last] == 0) {
        --last;
    }
    if (out_size < 0 || (last < 0 && out_size > 0)) {
        return {Code::bad_argument};
    }
    std::int64_t place = 0;
    for (std::int64_t i = 0; i <= last; ++i) {
        if (lengths[i] < 0 || lengths[i] > out_size - place) {
            return {Code::row_too_long, i};
        }
        const std::int64_t count = i == last ? out_size - place : lengths[i];
        if (count > 0 && start > std::numeric_limits<std::int64_t>::max() - (count - 1)) {
            return {Code::out_of_range, i};
        }
        count_up(start, count, out + place);
        place += count;
    }
    return {};
}

template <typename T>
Status seq_idx(Span<const std::int64_t> start, const std::int64_t* lengths, RowNumbers numbers, T* out,
               std::int64_t out_size) {
    if (out_size < 0 || start.size >= std::numeric_limits<std::int32_t>::max()) {
        return {Code::bad_argument};
    }
    const Fill fill = find_fill(sizeof(T));
    const T none = numbers.none;
    std::int64_t place = 0;
    for (std::int64_t i = 0; i < start.size; ++i) {
        if (start[i] < place || start[i] > out_size) {
            return {Code::bad_start, i};
        }
        if (lengths[i] < 0 || lengths[i] > out_size - start[i]) {
            return {Code::row_too_long, i};
        }
        const T number = numbers.first + static_cast<T>(i);
        if (start[i] > place) {
            fill(out + place, start[i] - place, &none);
        }
        fill(out + start[i], lengths[i], &number);
        place = start[i] + lengths[i];
    }
    fill(out + place, out_size - place, &none);
    return {};
}

template Status seq_idx(Span<const std::int64_t>, const std::int64_t*, RowNumbers, std::int32_t*, std::int64_t);
template Status seq_idx(Span<const std::int64_t>, const std::int64_t*, RowNumbers, std::int64_t*, std::int64_t);

Status cu_seqlens(Span<const std::int64_t> lengths, std::int32_t* out) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    std::int64_t total = 0;
    out[0] = 0;
    for (std::int64_t i = 0; i < lengths.size; ++i) {
        if (lengths[i] < 0 || lengths[i] > most - total) {
            return {Code::out_of_range, i};
        }
        total += lengths[i];
        out[i + 1] = static_cast<std::int32_t>(total);
    }
    return {};
}

Status separate_rows(Span<const std::int64_t> start, Kind kind, const void* value, void* out, std::int64_t out_size) {
    const std::size_t item = item_size(kind);
    for (std::int64_t i = 0; i < start.size; ++i) {
        if (start[i] < 0 || start[i] >= out_size) {
            return {Code::bad_start, i};
        }
        std::memcpy(static_cast<char*>(out) + bytes_of(start[i], item), value, item);
    }
    return {};
}

Status fill_ends(Span<const std::int64_t> start, const std::int64_t* lengths, std::int64_t inner, Kind kind,
                 const void* value, void* out, std::int64_t out_size) {
    const std::size_t token = bytes_of(inner, item_size(kind));
    const Fill fill = find_fill(item_size(kind));
    for (std::int64_t i = 0; i + 1 < start.size; ++i) {
        const std::int64_t begin = start[i], end = start[i + 1];
        if (begin < 0 || end < begin || end > out_size) {
            return {Code::bad_start, i};
        }
        if (lengths[i] < 0 || lengths[i] > end - begin) {
            return {Code::row_too_long, i};
        }
        if (const std::int64_t gap = end - begin - lengths[i]; gap > 0) {  // usually there is none
            fill(static_cast<char*>(out) + bytes_of(begin + lengths[i], token), gap * inner, value);
        }
    }
    return {};
}

}  // namespace quadrat
