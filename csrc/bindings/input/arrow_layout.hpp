// Types and arrays of the Arrow interface, checked as they are read: another library's word is all there is for them.
//
// Here is checked what a table says of itself. What offsets say is looked at with each row (flat_column.cpp), because
// to look at all of them would read a mapped file from end to end. How large buffers are is no part of the interface:
// that they reach as far as lengths and offsets say cannot be checked, nor that a pointer leads to memory.
#pragma once

#include <cstdint>
#include <string>

#include "arrow_abi.hpp"
#include "flat_column.hpp"

namespace quadrat::arrow {

// What an error is about.
struct Where {
    const char* column;  // its name; null or empty: it has none
    int depth = 0;       // how many lists it lies in

    Where inside() const { return {column, depth + 1}; }
};

// Throws ValueError: the data contradicts itself.
[[noreturn]] void refuse(const Where& where, const std::string& what);

// Throw ValueError for a schema that was released, and an array that was or has an impossible length.
void check(const Schema& schema, const Where& where);
void check(const Array& array, const Where& where);

// Throws ValueError unless a schema or an array has `children` children, none of them null.
template <typename Part>
void check_children(const Part& part, std::int64_t children, const Where& where) {
    if (part.n_children != children || children < 0) {
        refuse(where, "it has " + std::to_string(part.n_children) + " children where its type has " +
                          std::to_string(children < 0 ? 0 : children));
    }
    for (std::int64_t i = 0; i < children; ++i) {
        if (part.children == nullptr || part.children[i] == nullptr) {
            refuse(where, "its child " + std::to_string(i) + " is missing");
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
