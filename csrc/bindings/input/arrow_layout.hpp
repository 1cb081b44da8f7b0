// Types and arrays of the Arrow interface, checked as they are read. Offsets are checked with each row
// (flat_column.cpp), because checking all would read a mapped file from end to end. The interface does not say how
// large buffers are.
#pragma once

#include "flat_column.hpp"

namespace quadrat::arrow {

// The Arrow C data and stream interfaces, declared from their specification; the layouts never change.

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

// What an error is about.
struct Where {
    const char* column;  // its name; null or empty: it has none
    int depth = 0;       // how many lists it lies in

    Where inside() const { return {column, depth + 1}; }
};

// Throws ValueError: the data contradicts itself.
[[noreturn]] void refuse_text(const Where& where, const std::string& what);

template <typename... Parts>
[[noreturn]] void refuse(const Where& where, const Parts&... parts) {
    refuse_text(where, message(parts...));
}

// Throw ValueError for a schema that was released, and an array that was or has an impossible length.
void check(const Schema& schema, const Where& where);
void check(const Array& array, const Where& where);

// Throws ValueError unless a schema or an array has `children` children, none of them null.
template <typename Part>
void check_children(const Part& part, std::int64_t children, const Where& where) {
    if (part.n_children != children || children < 0) {
        refuse(where, "it has ", part.n_children, " children where its type has ", children < 0 ? 0 : children);
    }
    for (std::int64_t i = 0; i < children; ++i) {
        if (part.children == nullptr || part.children[i] == nullptr) {
            refuse(where, "its child ", i, " is missing");
        }
    }
}

// The type of a schema; Layout::other for one whose arrays are not read here. Throws ValueError.
FlatType type_of(const Schema& schema, const Where& where);

// Elements [first, first + length) of an array, which may be a part of its buffers itself. Throws ValueError when the
// array is not what its type asks for, or has fewer elements.
FlatArray flat_array(const FlatType& type, const Array& array, std::int64_t first, std::int64_t length,
                     const Where& where);

}  // namespace quadrat::arrow
