// Columns from whoever speaks the Arrow PyCapsule interface (pyarrow, polars, DuckDB, ...), by pointer.
#include <pybind11/pybind11.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrow_abi.hpp"
#include "flat_column.hpp"
#include "kind_caster.hpp"
#include "register.hpp"

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

bool number_of_format(char letter, Kind* out) {
    constexpr const char* letters = "cCsSiIlLfg";
    constexpr Kind kinds[] = {Kind::int8,   Kind::uint8, Kind::int16,  Kind::uint16,  Kind::int32,
                              Kind::uint32, Kind::int64, Kind::uint64, Kind::float32, Kind::float64};
    const char* const found = std::strchr(letters, letter);
    if (letter == '\0' || found == nullptr) {
        return false;
    }
    *out = kinds[found - letters];
    return true;
}

// The name of an extension type, whose values its storage need not show; empty for any other type.
std::string extension_name(const arrow::Schema& schema) {
    const char* at = schema.metadata;
    const auto number = [&at] {
        std::int32_t read = 0;
        std::memcpy(&read, at, sizeof read);
        at += sizeof read;
        return read;
    };
    const auto text = [&] {
        const std::int32_t size = number();
        at += size;
        return std::string(at - size, static_cast<std::size_t>(size));
    };
    for (std::int32_t entries = at == nullptr ? 0 : number(); entries > 0; --entries) {
        const std::string key = text(), value = text();
        if (key == "ARROW:extension:name") {
            return value;
        }
    }
    return {};
}

FlatType type_of(const arrow::Schema& schema) {
    FlatType type;
    type.format = extension_name(schema);
    if (!type.format.empty()) {
        return type;
    }
    type.format = schema.format;
    const std::string& format = type.format;
    if (schema.dictionary != nullptr) {
        return type;
    }
    if (format.size() == 1 && number_of_format(format[0], &type.kind)) {
        type.layout = Layout::number;
    } else if (format == "b") {
        type.layout = Layout::boolean;
    } else if (format == "n") {
        type.layout = Layout::null;
    } else if (format == "u" || format == "U") {
        type.layout = Layout::text;
        type.offset_bytes = format == "u" ? 4 : 8;
    } else if (format == "z" || format == "Z") {
        type.layout = Layout::binary;
        type.offset_bytes = format == "z" ? 4 : 8;
    } else if (schema.n_children == 1 && (format == "+l" || format == "+L" || format.rfind("+w:", 0) == 0)) {
        type.layout = Layout::list;
        type.offset_bytes = format == "+l" ? 4 : format == "+L" ? 8 : 0;
        type.fixed = type.offset_bytes == 0 ? std::strtoll(format.c_str() + 3, nullptr, 10) : 0;
        type.item = std::make_shared<const FlatType>(type_of(*schema.children[0]));
    }
    return type;
}

// Elements [first, first + length) of an array, which is itself a part of its buffers.
FlatArray flat_array(const FlatType& type, const arrow::Array& array, std::int64_t first, std::int64_t length) {
    FlatArray flat;
    flat.first = array.offset + first;
    flat.length = length;
    if (type.layout == Layout::null || type.layout == Layout::other) {
        return flat;
    }
    const auto buffer = [&](std::int64_t i) -> const void* { return i < array.n_buffers ? array.buffers[i] : nullptr; };
    flat.validity = array.null_count == 0 ? nullptr : static_cast<const std::uint8_t*>(buffer(0));
    switch (type.layout) {
        case Layout::text:
        case Layout::binary:
            flat.offsets = buffer(1);
            flat.data = buffer(2);
            break;
        case Layout::list:
            flat.offsets = type.offset_bytes == 0 ? nullptr : buffer(1);
            flat.items = std::make_shared<const FlatArray>(
                flat_array(*type.item, *array.children[0], 0, array.children[0]->length));
            break;
        default:
            flat.data = buffer(1);
    }
    return flat;
}

bool is_struct(const arrow::Schema& schema) { return std::strcmp(schema.format, "+s") == 0; }

void add_array(const arrow::Schema& schema, const arrow::Array& array, std::vector<FlatColumn>* columns) {
    if (!is_struct(schema)) {
        FlatColumn& column = columns->front();
        column.add_chunk(flat_array(column.type(), array, 0, array.length));
        return;
    }
    if (array.null_count != 0 && array.n_buffers > 0 && array.buffers[0] != nullptr) {
        throw py::value_error("rows that are null as a whole are no rows of a table: drop them first");
    }
    for (std::size_t i = 0; i < columns->size(); ++i) {
        FlatColumn& column = (*columns)[i];
        column.add_chunk(flat_array(column.type(), *array.children[i], array.offset, array.length));
    }
}

template <typename T>
T* unpack(const py::object& capsule, const char* name) {
    void* const pointer = PyCapsule_GetPointer(capsule.ptr(), name);
    if (pointer == nullptr) {
        throw py::error_already_set();
    }
    return static_cast<T*>(pointer);
}

// Takes over what a capsule holds; the capsule is left empty, as the protocol wants.
template <typename T>
void take(T* from, T* to) {
    if (from->release == nullptr) {
        throw py::value_error("the Arrow capsule was used before: ask for a new one");
    }
    *to = *from;
    from->release = nullptr;
}

void read_stream(arrow::ArrayStream* stream, Imported* out) {
    const auto check = [&](int error) {
        if (error != 0) {
            const char* const why = stream->get_last_error(stream);
            throw py::value_error(why == nullptr ? "the Arrow stream failed" : why);
        }
    };
    if (stream->release == nullptr) {
        throw py::value_error("the Arrow capsule was used before: ask for a new one");
    }
    check(stream->get_schema(stream, &out->schema));
    while (true) {
        auto array = std::make_unique<arrow::Array>();
        array->release = nullptr;
        check(stream->get_next(stream, array.get()));
        if (array->release == nullptr) {
            return;
        }
        out->arrays.push_back(std::move(array));
    }
}

std::shared_ptr<Imported> import(const py::object& source) {
    auto imported = std::make_shared<Imported>();
    if (py::hasattr(source, "__arrow_c_stream__")) {
        const py::object capsule = source.attr("__arrow_c_stream__")();
        read_stream(unpack<arrow::ArrayStream>(capsule, arrow::stream_capsule), imported.get());
        return imported;
    }
    const py::tuple capsules = source.attr("__arrow_c_array__")();
    take(unpack<arrow::Schema>(capsules[0], arrow::schema_capsule), &imported->schema);
    auto array = std::make_unique<arrow::Array>();
    take(unpack<arrow::Array>(capsules[1], arrow::array_capsule), array.get());
    imported->arrays.push_back(std::move(array));
    return imported;
}

// (names, columns) of a table or record batch; (None, [column]) of a single array.
py::tuple columns_of(const py::object& source) {
    const std::shared_ptr<Imported> imported = import(source);
    const arrow::Schema& schema = imported->schema;
    const bool is_table = is_struct(schema);
    std::vector<FlatColumn> columns;
    py::list names;
    for (std::int64_t i = 0; i < (is_table ? schema.n_children : 1); ++i) {
        const arrow::Schema& column = is_table ? *schema.children[i] : schema;
        columns.emplace_back(type_of(column), imported);
        names.append(py::str(column.name == nullptr ? "" : column.name));
    }
    for (const auto& array : imported->arrays) {
        add_array(schema, *array, &columns);
    }
    py::list result;
    for (FlatColumn& column : columns) {
        result.append(std::make_shared<FlatColumn>(std::move(column)));
    }
    return py::make_tuple(is_table ? py::object(py::tuple(names)) : py::none(), result);
}

// Memory of an array library as a column; `keep` owns it. offsets: [rows + 1] int64, or 0 for single numbers.
std::shared_ptr<FlatColumn> column_of_memory(std::uintptr_t values, Kind kind, std::int64_t values_size,
                                             std::uintptr_t offsets, std::int64_t rows, py::object keep) {
    if (values_size < 0 || rows < 0 || (offsets == 0 && rows > values_size)) {
        throw py::value_error("a size is negative, or there are fewer values than rows");
    }
    FlatType number;
    number.layout = Layout::number;
    number.kind = kind;
    number.format = kind_names[static_cast<int>(kind)];
    FlatArray values_array;
    values_array.length = values_size;
    values_array.data = reinterpret_cast<const void*>(values);
    auto owner = std::shared_ptr<const void>(new py::object(std::move(keep)), [](const void* held) {
        const py::gil_scoped_acquire gil;
        delete static_cast<const py::object*>(held);
    });
    if (offsets == 0) {
        auto column = std::make_shared<FlatColumn>(std::move(number), std::move(owner));
        values_array.length = rows;
        column->add_chunk(std::move(values_array));
        return column;
    }
    FlatType list;
    list.layout = Layout::list;
    list.offset_bytes = 8;
    list.format = "list of " + number.format;
    list.item = std::make_shared<const FlatType>(std::move(number));
    auto column = std::make_shared<FlatColumn>(std::move(list), std::move(owner));
    FlatArray array;
    array.length = rows;
    array.offsets = reinterpret_cast<const void*>(offsets);
    array.items = std::make_shared<const FlatArray>(std::move(values_array));
    column->add_chunk(std::move(array));
    return column;
}

}  // namespace

void register_arrow(py::module_& m) {
    py::class_<FlatColumn, std::shared_ptr<FlatColumn>>(m, "FlatColumn")
        .def("__len__", &FlatColumn::size)
        .def_property_readonly("format", [](const FlatColumn& self) { return self.type().format; });
    m.def("arrow_columns", &columns_of, py::arg("source"));
    m.def("memory_column", &column_of_memory, py::arg("values"), py::arg("kind"), py::arg("values_size"),
          py::arg("offsets"), py::arg("rows"), py::arg("keep"));
}

}  // namespace quadrat
