// Columns from whoever speaks the Arrow PyCapsule interface (pyarrow, polars, DuckDB, ...), by pointer. Types and
// arrays are checked as they are read. Offsets are checked with each row (flat_column.cpp), because checking all would
// read a mapped file from end to end. The interface does not say how large buffers are.
#include <pybind11/critical_section.h>
#include <pybind11/stl.h>

#include <charconv>
#include <cstring>
#include <string_view>
#include <system_error>

#include "../classes.hpp"
#include "flat_column.hpp"

namespace quadrat {
namespace {
namespace arrow {

using Layout = FlatType::Layout;

constexpr int most_levels = 64;                                // of lists in lists, as in Arrow's own import
constexpr std::int64_t most_elements = std::int64_t{1} << 56;  // beyond any memory: sizes in bytes do not overflow

// The Arrow C data and stream interfaces, declared from their specification; the layouts never change.

// The type of a column. Whoever receives one calls `release` when done; a null `release` says that it is gone.
struct Schema {
    const char *format, *name, *metadata;
    std::int64_t flags, n_children;
    Schema** children;
    Schema* dictionary;
    void (*release)(Schema*);
    void* private_data;
};

// Elements [offset, offset + length) of the buffers, which `format` gives their meaning.
struct Array {
    std::int64_t length, null_count, offset, n_buffers, n_children;  // a null_count of -1: not counted
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
template <typename... Parts>
[[noreturn]] void refuse(const Where& where, const Parts&... parts) {
    const bool named = where.column != nullptr && *where.column != '\0';
    const std::string level = where.depth > 1 ? message(", level ", where.depth) : "";
    const std::string depth = where.depth > 0 ? message(" (the elements of its lists", level, ")") : "";
    const std::string column = named ? message("column '", where.column, "': ") : "";
    throw py::value_error(message(column, "the Arrow data is damaged: ", parts..., depth));
}

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

void check(const Schema& schema, const Where& where) {
    if (schema.release == nullptr) {
        refuse(where, "its schema was released");
    }
}

void check(const Array& array, const Where& where) {
    if (array.release == nullptr) {
        refuse(where, "its array was released");
    }
    const bool possible = array.length >= 0 && array.offset >= 0 && array.length <= most_elements &&
                          array.offset <= most_elements - array.length;
    if (!possible) {
        refuse(where, "it has length ", array.length, " at offset ", array.offset);
    }
    if (array.null_count < -1 || array.null_count > array.length) {
        refuse(where, array.null_count, " of ", array.length, " elements are null");
    }
}

// What the metadata of a type have under a key, `ARROW:extension:name` for example; empty where there is nothing.
std::string metadata_of(const Schema& schema, const char* wanted, const Where& where) {
    const char* at = schema.metadata;
    const auto number = [&] {
        std::int32_t read = 0;
        std::memcpy(&read, at, sizeof read);
        at += sizeof read;
        if (read < 0) {
            refuse(where, "its metadata has a size of ", read);
        }
        return read;
    };
    const auto text = [&] {
        const std::int32_t size = number();
        at += size;
        return std::string(at - size, static_cast<std::size_t>(size));
    };
    for (std::int32_t entries = at == nullptr ? 0 : number(); entries > 0; --entries) {
        const std::string key = text(), value = text();
        if (key == wanted) {
            return value;
        }
    }
    return {};
}

// The shape of an extension type of `datasets`, Array2D to Array5D, from its text "[[2, null, 3], ...". A null becomes
// -1. Empty for other types and for text of another form.
std::vector<std::int64_t> shape_of(const std::string& name, const std::string& text) {
    std::vector<std::int64_t> shape;
    if (name.rfind("datasets.features.features.Array", 0) != 0 || text.rfind("[[", 0) != 0) {
        return {};
    }
    const char *at = text.data() + 2, *const end = text.data() + text.size();
    for (bool has_next = true; has_next; at += has_next ? 2 : 0) {
        std::int64_t size = -1;
        const bool unknown = text.compare(static_cast<std::size_t>(at - text.data()), 4, "null") == 0;
        const auto [read, error] =
            unknown ? std::from_chars_result{at + 4, std::errc()} : std::from_chars(at, end, size);
        shape.push_back(size);
        at = read;
        has_next = end - at >= 2 && at[0] == ',' && at[1] == ' ';
        if (error != std::errc() || (!unknown && size < 0) || (!has_next && (at == end || *at != ']'))) {
            return {};
        }
    }
    return shape;
}

// The size of the lists of a type "+w:size".
std::int64_t fixed_size(const std::string& format, const Where& where) {
    std::int64_t size = -1;
    const char* const end = format.data() + format.size();
    const auto [read, error] = std::from_chars(format.data() + std::strlen("+w:"), end, size);
    if (error != std::errc() || read != end || size < 0) {
        refuse(where, "'", format, "' is not a type");
    }
    return size;
}

// What the type asks for beside the elements themselves.
void check_buffers(const FlatType& type, const Array& array, const Where& where) {
    const bool is_text = type.layout == Layout::text || type.layout == Layout::binary;
    const bool is_even = type.layout == Layout::list && type.offset_bytes == 0;
    const std::int64_t buffers = is_text ? 3 : is_even ? 1 : 2, last = array.offset + array.length;
    if (array.n_buffers != buffers || array.buffers == nullptr) {
        refuse(where, "it has ", array.buffers == nullptr ? 0 : array.n_buffers, " buffers where its type '",
               type.format, "' has ", buffers);
    }
    if (array.null_count > 0 && array.buffers[0] == nullptr) {
        refuse(where, array.null_count, " elements are null, and no buffer says which");
    }
    if (buffers > 1 && last > 0 && array.buffers[1] == nullptr) {
        refuse(where, "it has no buffer of ", type.offset_bytes > 0 ? "offsets" : "values");
    }
    if (array.dictionary != nullptr) {
        refuse(where, "it has a dictionary, and its type '", type.format, "' has none");
    }
    if (type.fixed > 0 && last > array.children[0]->length / type.fixed) {
        refuse(where, last, " lists of ", type.fixed, " elements do not fit into ", array.children[0]->length);
    }
}

// The type of a schema; Layout::other for one whose arrays are not read here.
FlatType type_of(const Schema& schema, const Where& where) {
    check(schema, where);
    if (schema.format == nullptr) {
        refuse(where, "its schema has no format");
    }
    if (where.depth > most_levels) {
        refuse(where, "lists lie in lists on more than ", most_levels, " levels");
    }
    FlatType type;
    type.format = metadata_of(schema, "ARROW:extension:name", where);
    if (!type.format.empty()) {
        type.told = shape_of(type.format, metadata_of(schema, "ARROW:extension:metadata", where));
        type.is_extension = !type.told.empty();
        if (!type.is_extension) {
            return type;
        }
    }
    const std::string format = schema.format;
    type.format = type.is_extension ? type.format : format;
    if (schema.dictionary != nullptr) {
        return type;
    }
    constexpr std::string_view numbers =
        "cCsSiIlLfge";  // the kinds after bool_, in their order; bfloat16 is none of Arrow's
    static_assert(numbers.size() + 2 == kind_count);
    const std::size_t number = format.size() == 1 ? numbers.find(format[0]) : numbers.npos;
    if (number != numbers.npos) {
        type.layout = Layout::number;
        type.kind = static_cast<Kind>(number + 1);
    } else if (format == "b") {
        type.layout = Layout::boolean;
    } else if (format == "n") {
        type.layout = Layout::null;
    } else if (format == "u" || format == "U" || format == "z" || format == "Z") {
        type.layout = format == "u" || format == "U" ? Layout::text : Layout::binary;
        type.offset_bytes = format == "u" || format == "z" ? 4 : 8;
    } else if (format == "+l" || format == "+L" || format.rfind("+w:", 0) == 0) {
        type.layout = Layout::list;
        type.offset_bytes = format == "+l" ? 4 : format == "+L" ? 8 : 0;
        type.fixed = type.offset_bytes == 0 ? fixed_size(format, where) : 0;
    }
    if (type.layout != Layout::other) {
        check_children(schema, type.layout == Layout::list ? 1 : 0, where);
    }
    if (type.layout == Layout::list) {
        type.item = std::make_shared<const FlatType>(type_of(*schema.children[0], where.inside()));
    }
    return type;
}

// Elements [first, first + length) of an array, which may be a part of its buffers itself. Throws ValueError when the
// array is not what its type asks for, or has fewer elements.
FlatArray flat_array(const FlatType& type, const Array& array, std::int64_t first, std::int64_t length,
                     const Where& where) {
    check(array, where);
    if (first + length > array.length) {
        refuse(where, "it has ", array.length, " rows where the table has ", first + length);
    }
    FlatArray flat;
    flat.first = array.offset + first;
    flat.length = length;
    if (type.layout == Layout::null || type.layout == Layout::other) {
        return flat;
    }
    check_children(array, type.layout == Layout::list ? 1 : 0, where);
    check_buffers(type, array, where);
    flat.validity = array.null_count == 0 ? nullptr : static_cast<const std::uint8_t*>(array.buffers[0]);
    if (type.layout == Layout::text || type.layout == Layout::binary) {
        flat.offsets = array.buffers[1];
        flat.data = array.buffers[2];
    } else if (type.layout == Layout::list) {
        const Array& items = *array.children[0];
        flat.offsets = type.offset_bytes == 0 ? nullptr : array.buffers[1];
        flat.items = std::make_shared<const FlatArray>(flat_array(*type.item, items, 0, items.length, where.inside()));
    } else {
        flat.data = array.buffers[1];
    }
    return flat;
}

// Everything a stream or array gave, released when the last column of it is gone.
struct Imported {
    struct Release {
        template <typename Part>
        void operator()(Part* part) const {
            if (part->release != nullptr) {
                part->release(part);
            }
            delete part;
        }
    };

    std::unique_ptr<Schema, Release> schema{new Schema{}};
    std::vector<std::unique_ptr<Array, Release>> arrays;

    Array* add_array() { return arrays.emplace_back(std::unique_ptr<Array, Release>(new Array{})).get(); }
};

bool is_struct(const Schema& schema) { return schema.format != nullptr && std::strcmp(schema.format, "+s") == 0; }

// The rows of a table are there as a whole; what is null is a value in a column.
bool has_null_rows(const Array& array, const Where& where) {
    const void* const bits = array.n_buffers > 0 && array.buffers != nullptr ? array.buffers[0] : nullptr;
    if (bits == nullptr && array.null_count > 0) {
        refuse(where, array.null_count, " rows are null, and no buffer says which");
    }
    return bits != nullptr && array.null_count != 0 &&
           !all_set(static_cast<const std::uint8_t*>(bits), array.offset, array.length);
}

void add_array(const Schema& schema, const Array& array, const Where& where, std::vector<FlatColumn>* columns) {
    if (!is_struct(schema)) {
        FlatColumn& column = columns->front();
        column.add_chunk(flat_array(column.type(), array, 0, array.length, where));
        return;
    }
    check(array, where);
    check_children(array, schema.n_children, where);
    if (has_null_rows(array, where)) {
        throw py::value_error("some rows of the table are null as a whole: drop them first");
    }
    for (std::size_t i = 0; i < columns->size(); ++i) {
        FlatColumn& column = (*columns)[i];
        const Where child{schema.children[i]->name};
        column.add_chunk(flat_array(column.type(), *array.children[i], array.offset, array.length, child));
    }
}

template <typename T>
T* unpack(const py::object& capsule, const char* name) {
    auto* const held = pointer_in<T>(capsule, name);
    if (held->release == nullptr) {
        throw py::value_error("the Arrow capsule was used before: ask for a new one");
    }
    return held;
}

void read_stream(ArrayStream* stream, Imported* out) {
    const auto check = [&](int error) {
        if (error != 0) {
            const char* const why = stream->get_last_error == nullptr ? nullptr : stream->get_last_error(stream);
            throw py::value_error(why == nullptr ? "the Arrow stream failed" : why);
        }
    };
    if (stream->get_schema == nullptr || stream->get_next == nullptr) {
        throw py::value_error("the Arrow stream has no functions to read it with");
    }
    check(stream->get_schema(stream, out->schema.get()));
    do {
        check(stream->get_next(stream, out->add_array()));
    } while (out->arrays.back()->release != nullptr);
    out->arrays.pop_back();
}

std::shared_ptr<Imported> import(const py::object& source) {
    auto imported = std::make_shared<Imported>();
    if (py::hasattr(source, "__arrow_c_stream__")) {
        const py::object capsule = source.attr("__arrow_c_stream__")();
        const py::scoped_critical_section lock{capsule};
        read_stream(unpack<ArrayStream>(capsule, "arrow_array_stream"), imported.get());
        return imported;
    }
    const py::tuple capsules = source.attr("__arrow_c_array__")();
    if (capsules.size() != 2) {
        throw py::value_error(message("__arrow_c_array__ gives two capsules, not ", capsules.size()));
    }
    const py::scoped_critical_section lock{capsules[0], capsules[1]};
    Array* const array = imported->add_array();  // first: nothing may fail once a capsule is empty
    // What a capsule holds is taken over; the capsule is left empty, as the protocol wants.
    *imported->schema = std::exchange(*unpack<Schema>(capsules[0], "arrow_schema"), {});
    *array = std::exchange(*unpack<Array>(capsules[1], "arrow_array"), {});
    return imported;
}

// (names, columns) of a table or record batch; (None, [column]) of a single array, which errors call by `name`.
py::tuple columns_of(const py::object& source, const std::string& name) {
    const std::shared_ptr<Imported> imported = import(source);
    const Schema& schema = *imported->schema;
    const Where where{name.c_str()};
    const bool is_table = is_struct(schema);
    std::vector<FlatColumn> columns;
    py::list names;
    if (is_table) {
        check(schema, where);
        check_children(schema, schema.n_children, where);
        for (std::int64_t i = 0; i < schema.n_children; ++i) {
            const Schema& column = *schema.children[i];
            columns.emplace_back(type_of(column, {column.name}), imported);
            names.append(py::str(column.name == nullptr ? "" : column.name));
        }
    } else {
        columns.emplace_back(type_of(schema, where), imported);
    }
    for (const auto& array : imported->arrays) {
        add_array(schema, *array, where, &columns);
    }
    py::list result;
    for (FlatColumn& column : columns) {
        result.append(std::move(column));
    }
    return py::make_tuple(is_table ? py::object(py::tuple(names)) : py::none(), result);
}

}  // namespace arrow
}  // namespace

void register_arrow(py::module_& m) { m.def("arrow_columns", &arrow::columns_of, "source"_a, "name"_a = ""); }

}  // namespace quadrat
