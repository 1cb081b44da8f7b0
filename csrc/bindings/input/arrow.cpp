// Columns from whoever speaks the Arrow PyCapsule interface (pyarrow, polars, DuckDB, ...), by pointer.
#include <pybind11/critical_section.h>
#include <pybind11/stl.h>

#include <cstring>

#include "../classes.hpp"
#include "arrow_layout.hpp"

namespace quadrat {
namespace {

using Layout = FlatType::Layout;

// Everything a stream or array gave, released when the last column of it is gone.
struct Imported {
    arrow::Schema schema{};
    std::vector<std::unique_ptr<arrow::Array>> arrays;

    Imported() = default;
    Imported(const Imported&) = delete;
    Imported& operator=(const Imported&) = delete;
    ~Imported() {
        for (const auto& array : arrays) {
            if (array->release != nullptr) {
                array->release(array.get());
            }
        }
        if (schema.release != nullptr) {
            schema.release(&schema);
        }
    }
};

bool is_struct(const arrow::Schema& schema) {
    return schema.format != nullptr && std::strcmp(schema.format, "+s") == 0;
}

// The rows of a table are there as a whole; what is null is a value in a column.
bool has_null_rows(const arrow::Array& array, const arrow::Where& where) {
    const void* const bits = array.n_buffers > 0 && array.buffers != nullptr ? array.buffers[0] : nullptr;
    if (bits == nullptr && array.null_count > 0) {
        arrow::refuse(where, array.null_count, " rows are null, and no buffer says which");
    }
    return bits != nullptr && array.null_count != 0 &&
           !all_set(static_cast<const std::uint8_t*>(bits), array.offset, array.length);
}

void add_array(const arrow::Schema& schema, const arrow::Array& array, const arrow::Where& where,
               std::vector<FlatColumn>* columns) {
    if (!is_struct(schema)) {
        FlatColumn& column = columns->front();
        column.add_chunk(flat_array(column.type(), array, 0, array.length, where));
        return;
    }
    arrow::check(array, where);
    arrow::check_children(array, schema.n_children, where);
    if (has_null_rows(array, where)) {
        throw py::value_error("some rows of the table are null as a whole: drop them first");
    }
    for (std::size_t i = 0; i < columns->size(); ++i) {
        FlatColumn& column = (*columns)[i];
        const arrow::Where child{schema.children[i]->name};
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

// Takes over what a capsule holds; the capsule is left empty, as the protocol wants.
template <typename T>
void take(T* from, T* to) {
    *to = *from;
    from->release = nullptr;
}

void read_stream(arrow::ArrayStream* stream, Imported* out) {
    const auto check = [&](int error) {
        if (error != 0) {
            const char* const why = stream->get_last_error == nullptr ? nullptr : stream->get_last_error(stream);
            throw py::value_error(why == nullptr ? "the Arrow stream failed" : why);
        }
    };
    if (stream->get_schema == nullptr || stream->get_next == nullptr) {
        throw py::value_error("the Arrow stream has no functions to read it with");
    }
    check(stream->get_schema(stream, &out->schema));
    do {
        out->arrays.push_back(std::make_unique<arrow::Array>());
        check(stream->get_next(stream, out->arrays.back().get()));
    } while (out->arrays.back()->release != nullptr);
    out->arrays.pop_back();
}

std::shared_ptr<Imported> import(const py::object& source) {
    auto imported = std::make_shared<Imported>();
    if (py::hasattr(source, "__arrow_c_stream__")) {
        const py::object capsule = source.attr("__arrow_c_stream__")();
        const py::scoped_critical_section lock{capsule};
        read_stream(unpack<arrow::ArrayStream>(capsule, "arrow_array_stream"), imported.get());
        return imported;
    }
    const py::tuple capsules = source.attr("__arrow_c_array__")();
    if (capsules.size() != 2) {
        throw py::value_error(message("__arrow_c_array__ gives two capsules, not ", capsules.size()));
    }
    const py::scoped_critical_section lock{capsules[0], capsules[1]};
    take(unpack<arrow::Schema>(capsules[0], "arrow_schema"), &imported->schema);
    imported->arrays.push_back(std::make_unique<arrow::Array>());
    take(unpack<arrow::Array>(capsules[1], "arrow_array"), imported->arrays.back().get());
    return imported;
}

// (names, columns) of a table or record batch; (None, [column]) of a single array, which errors call by `name`.
py::tuple columns_of(const py::object& source, const std::string& name) {
    const std::shared_ptr<Imported> imported = import(source);
    const arrow::Schema& schema = imported->schema;
    const arrow::Where where{name.c_str()};
    const bool is_table = is_struct(schema);
    std::vector<FlatColumn> columns;
    py::list names;
    if (is_table) {
        arrow::check(schema, where);
        arrow::check_children(schema, schema.n_children, where);
        for (std::int64_t i = 0; i < schema.n_children; ++i) {
            const arrow::Schema& column = *schema.children[i];
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

// Memory of an array library as a column; `keep` owns it. values: `tokens` of these dimensions. offsets: [rows + 1]
// int64, or 0 where each row is one token.
FlatColumn column_of_memory(Address values, Kind kind, std::int64_t tokens, Address offsets, std::int64_t rows,
                            py::object keep, const Trailing& trailing) {
    const bool single = offsets.value == 0;
    const std::int64_t inner = elements_of(trailing);
    if (tokens < 0 || rows < 0 || (single && rows > tokens) || inner < 0) {
        throw py::value_error("a size is negative, or there are fewer values than rows");
    }
    FlatType type;
    type.layout = Layout::number;
    type.kind = kind;
    type.format = kind_names[static_cast<int>(kind)];
    FlatArray array;
    array.length = tokens * inner;
    array.data = values;
    const auto wrap = [&](int offset_bytes, std::int64_t fixed, std::int64_t length) {
        FlatType list;
        list.layout = Layout::list;
        list.offset_bytes = offset_bytes;
        list.fixed = fixed;
        list.format = "list of " + type.format;
        list.item = std::make_shared<const FlatType>(std::move(type));
        type = std::move(list);
        FlatArray lists;
        lists.length = length;
        lists.items = std::make_shared<const FlatArray>(std::move(array));
        array = std::move(lists);
    };
    for (std::size_t axis = trailing.size(); axis-- > 0;) {
        const Trailing outer(trailing.begin(), trailing.begin() + static_cast<std::ptrdiff_t>(axis));
        wrap(0, trailing[axis], tokens * elements_of(outer));
    }
    if (!single) {
        wrap(8, 0, rows);
        array.offsets = offsets;
    }
    array.length = rows;
    FlatColumn column(std::move(type), std::move(keep));
    column.add_chunk(std::move(array));
    return column;
}

}  // namespace

void register_arrow(py::module_& m) {
    bind_class<FlatColumn>(m, "FlatColumn")
        .def("__len__", &FlatColumn::size)
        .def_property_readonly("format", [](const FlatColumn& self) { return self.type().format; })
        .def_property_readonly("kind", [](const FlatColumn& self) -> py::object {
            const FlatType* item = &self.type();  // of lists, and lists in them
            while (item->layout == Layout::list) {
                item = item->item.get();
            }
            const bool numbers = item->layout == Layout::number && item != &self.type();
            return numbers ? py::cast(item->kind) : py::object(py::none());
        });
    m.def("arrow_columns", &columns_of, "source"_a, "name"_a = "");
    m.def("memory_column", &column_of_memory, "values"_a, "kind"_a, "tokens"_a, "offsets"_a, "rows"_a, "keep"_a,
          "trailing"_a = py::tuple());
}

}  // namespace quadrat
