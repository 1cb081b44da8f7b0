// The Arrow C data interface: how a library hands out columns without copying them. Declared from its specification
// (Apache Arrow, "The Arrow C data interface" and "The Arrow C stream interface"); layouts are fixed for ever.
#pragma once

#include <cstdint>

namespace quadrat::arrow {

// The type of a column. Whoever receives one calls `release` when done; a null `release` says that it is gone.
struct Schema {
    const char* format;
    const char* name;
    const char* metadata;
    std::int64_t flags;
    std::int64_t n_children;
    Schema** children;
    Schema* dictionary;
    void (*release)(Schema*);
    void* private_data;
};

// Elements [offset, offset + length) of the buffers, which `format` gives their meaning.
struct Array {
    std::int64_t length;
    std::int64_t null_count;  // -1: not counted
    std::int64_t offset;
    std::int64_t n_buffers;
    std::int64_t n_children;
    const void** buffers;
    Array** children;
    Array* dictionary;
    void (*release)(Array*);
    void* private_data;
};

// Arrays of one type, one after the other; functions return 0 or an errno.
struct ArrayStream {
    int (*get_schema)(ArrayStream*, Schema* out);
    int (*get_next)(ArrayStream*, Array* out);  // a null `release` in `out`: that was all
    const char* (*get_last_error)(ArrayStream*);
    void (*release)(ArrayStream*);
    void* private_data;
};

inline constexpr const char* schema_capsule = "arrow_schema";
inline constexpr const char* array_capsule = "arrow_array";
inline constexpr const char* stream_capsule = "arrow_array_stream";

}  // namespace quadrat::arrow
