#include "unpad.hpp"

#include "bytes.hpp"
#include "stream.hpp"

namespace quadrat {
namespace {

// The first row that has no place, or all is well. Looked at before anything is written.
Status check(std::int64_t width, Span<const std::int64_t> offsets, std::int64_t out_size) {
    for (std::int64_t i = 0; i + 1 < offsets.size; ++i) {
        if (offsets[i] < 0 || offsets[i] > out_size) {
            return {Code::bad_start, i};
        }
        if (offsets[i + 1] < offsets[i]) {
            return {Code::bad_start, i + 1};
        }
        if (offsets[i + 1] - offsets[i] > width || offsets[i + 1] > out_size) {
            return {Code::row_too_long, i};
        }
    }
    return {};
}

}  // namespace

Status unpad(const void* padded, std::int64_t width, Side side, Span<const std::int64_t> offsets, std::size_t token,
             void* out, std::int64_t out_size) {
    if (width < 0 || offsets.size < 1 || out_size < 0) {
        return {Code::bad_argument};
    }
    if (const Status status = check(width, offsets, out_size); !status) {
        return status;
    }
    const auto bytes = [token](std::int64_t tokens) { return static_cast<std::size_t>(tokens) * token; };
    const char* const in = static_cast<const char*>(padded);
    char* const target = static_cast<char*>(out);
    const std::int64_t rows = offsets.size - 1;
    const std::int64_t first = rows == 0 ? out_size : offsets[0];
    const std::int64_t last = rows == 0 ? out_size : offsets[rows];
    fill_bytes(target, 0, bytes(first));
    // Where the batch has no padding, the rows are one.
    const bool whole = rows > 0 && last - first == rows * width;
    const bool stream = bytes(last - first) >= static_cast<std::size_t>(stream_threshold);
    for (std::int64_t i = 0; i < rows; i += whole ? rows : 1) {
        const std::int64_t length = whole ? last - first : offsets[i + 1] - offsets[i];
        const char* const source = in + bytes(whole ? 0 : padded_start(i, length, width, side));
        if (stream) {
            stream_copy(target + bytes(offsets[i]), source, bytes(length));
        } else {
            copy_bytes(target + bytes(offsets[i]), source, bytes(length));
        }
    }
    if (stream) {
        stream_fence();
    }
    fill_bytes(target + bytes(last), 0, bytes(out_size - last));
    return {};
}

}  // namespace quadrat
