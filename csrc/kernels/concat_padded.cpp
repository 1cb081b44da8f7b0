#include "concat_padded.hpp"

#include <algorithm>

#include "bytes.hpp"
#include "fill.hpp"
#include "stream.hpp"

namespace quadrat {
namespace {

// The first block that has no place, or all is well. Looked at before anything is written.
Status check(Span<const Block> blocks, std::int64_t width, std::int64_t rows) {
    std::int64_t left = rows;
    for (std::int64_t i = 0; i < blocks.size; ++i) {
        if (blocks[i].width < 0 || blocks[i].width > width) {
            return {Code::row_too_long, i};
        }
        if (blocks[i].rows < 0 || blocks[i].rows > left) {
            return {Code::bad_start, i};
        }
        left -= blocks[i].rows;
    }
    return left == 0 ? Status{} : Status{Code::bad_start, blocks.size};
}

bool is_plain(std::size_t item) { return item == 1 || item == 2 || item == 4 || item == 8; }

// Copies of an item of any size: each copy doubles what there is to copy from.
void fill_any(char* out, std::size_t bytes, const void* value, std::size_t item) {
    copy_bytes(out, value, std::min(item, bytes));
    for (std::size_t done = item; done < bytes;) {
        const std::size_t next = std::min(done, bytes - done);
        copy_bytes(out + done, out, next);
        done += next;
    }
}

// As move_bytes. What does not overlap may be streamed.
void move(char* target, const char* source, std::size_t bytes, const Copier& copy) {
    if (target == source) {
        return;
    }
    if (copy.streams() && (source + bytes <= target || target + bytes <= source)) {
        copy(target, source, bytes);
    } else {
        move_bytes(target, source, bytes);
    }
}

}  // namespace

Status concat_padded(Span<const Block> blocks, std::int64_t width, std::size_t token, const void* fill,
                     std::size_t item, void* out, std::int64_t rows) {
    if (width < 0 || rows < 0 || item == 0 || token % item != 0) {
        return {Code::bad_argument};
    }
    if (const Status status = check(blocks, width, rows); !status) {
        return status;
    }
    const std::size_t row_bytes = static_cast<std::size_t>(width) * token;
    const Copier copy(static_cast<std::size_t>(rows) * row_bytes);
    const Fill plain = is_plain(item) ? find_fill(item) : nullptr;
    char* target = static_cast<char*>(out) + static_cast<std::size_t>(rows) * row_bytes;
    for (std::int64_t i = blocks.size; i-- > 0;) {
        const char* const source = static_cast<const char*>(blocks[i].data);
        const std::size_t bytes = static_cast<std::size_t>(blocks[i].width) * token;
        const auto count = static_cast<std::size_t>(blocks[i].rows);
        if (bytes == row_bytes) {
            target -= count * row_bytes;
            move(target, source, count * row_bytes, copy);
            continue;
        }
        for (std::size_t row = count; row-- > 0;) {
            target -= row_bytes;
            move(target, source + row * bytes, bytes, copy);
            if (plain != nullptr) {
                plain(target + bytes, static_cast<std::int64_t>((row_bytes - bytes) / item), fill);
            } else {
                fill_any(target + bytes, row_bytes - bytes, fill, item);
            }
        }
    }
    return {};
}

}  // namespace quadrat
