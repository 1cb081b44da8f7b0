#include "flat_column.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "../../kernels/convert.hpp"
#include "../../kernels/prefetch.hpp"
#include "../classes.hpp"

namespace quadrat {
namespace {

using Layout = FlatType::Layout;

bool bit(const std::uint8_t* bits, std::int64_t at) { return ((bits[at / 8] >> (at % 8)) & 1) != 0; }

bool is_null(const FlatArray& array, std::int64_t at) {
    return array.validity != nullptr && !bit(array.validity, array.first + at);
}

struct Bounds {
    std::int64_t begin, end;
};

std::int64_t read_offset(const FlatType& type, const FlatArray& array, std::int64_t at) {
    return type.offset_bytes == 4 ? static_cast<const std::int32_t*>(array.offsets)[at]
                                  : static_cast<const std::int64_t*>(array.offsets)[at];
}

// Which of `size` items make up an element of a list or text. Offsets are another library's: each pair is checked.
Bounds bounds(const FlatType& type, const FlatArray& array, std::int64_t at, std::int64_t size) {
    const std::int64_t physical = array.first + at;
    if (type.offset_bytes == 0) {
        return {physical * type.fixed, (physical + 1) * type.fixed};
    }
    const Bounds part{read_offset(type, array, physical), read_offset(type, array, physical + 1)};
    if (part.begin < 0 || part.end < part.begin || part.end > size) {
        throw py::value_error(message("its offsets run from ", part.begin, " to ", part.end, " of ", size,
                                      " values: the data is damaged"));
    }
    return part;
}

bool is_there(const FlatArray& array, const Bounds& part) {
    return array.validity == nullptr || all_set(array.validity, array.first + part.begin, part.end - part.begin);
}

// How long all lists of a part are, which becomes that of their items; -1 where they differ.
std::int64_t even_width(const FlatType& type, const FlatArray& array, Bounds* part) {
    const Bounds first = bounds(type, array, part->begin, array.items->length);
    const std::int64_t width = first.end - first.begin;
    std::int64_t end = first.begin;
    for (std::int64_t at = part->begin; at < part->end; ++at) {
        const Bounds list = bounds(type, array, at, array.items->length);
        if (list.begin != end || list.end != end + width) {
            return -1;
        }
        end += width;
    }
    *part = {first.begin, end};
    return width;
}

// Whether lists have the lengths that extension types tell.
bool is_as_told(const FlatType& type, std::int64_t length, const Trailing& trailing) {
    if (type.told.empty() && trailing.empty()) {
        return true;
    }
    const FlatType* level = &type;
    for (std::size_t depth = 0; depth <= trailing.size(); ++depth, level = level->item.get()) {
        for (std::size_t i = 0; i < level->told.size(); ++i) {
            const std::size_t at = depth + i;
            if (at > trailing.size() ||
                (level->told[i] >= 0 && level->told[i] != (at == 0 ? length : trailing[at - 1]))) {
                return false;
            }
        }
    }
    return true;
}

// Of the size of a text's buffer the last offset is all there is.
Bounds text_bounds(const FlatType& type, const FlatArray& array, std::int64_t at) {
    return bounds(type, array, at, array.data == nullptr ? 0 : read_offset(type, array, array.first + array.length));
}

Row row_at(Kind kind, const void* data, std::int64_t first, std::int64_t length) {
    const auto item = static_cast<std::int64_t>(item_size(kind));
    return {static_cast<const char*>(data) + first * item, length, item, kind};
}

template <typename T>
PyObject* number_at(const char* at) {
    T value{};
    std::memcpy(&value, at, sizeof value);
    if constexpr (std::is_floating_point_v<T> || !std::is_arithmetic_v<T>) {
        return PyFloat_FromDouble(static_cast<double>(value));
    } else if constexpr (std::is_signed_v<T>) {
        return PyLong_FromLongLong(value);
    } else {
        return PyLong_FromUnsignedLongLong(value);
    }
}

PyObject* bool_at(const char* at) { return PyBool_FromLong(*at != 0); }

// By Kind: the number at an address as a Python object; null where there is no memory for it.
constexpr PyObject* (*objects_at[kind_count])(const char*) = {
    bool_at,
    number_at<std::int8_t>,
    number_at<std::uint8_t>,
    number_at<std::int16_t>,
    number_at<std::uint16_t>,
    number_at<std::int32_t>,
    number_at<std::uint32_t>,
    number_at<std::int64_t>,
    number_at<std::uint64_t>,
    number_at<float>,
    number_at<double>,
    number_at<Half>,
    number_at<Brain>,
};

py::object number(const Row& row) {
    return taken(objects_at[static_cast<int>(row.kind)](static_cast<const char*>(row.data)));
}

// Numbers that a Python list of them would hold alike; uint64 may hold more than an int64, and bools are bits.
bool is_plain(const FlatType& type) { return type.layout == Layout::number && type.kind != Kind::uint64; }

}  // namespace

bool all_set(const std::uint8_t* bits, std::int64_t first, std::int64_t count) {
    for (std::int64_t at = first; at < first + count;) {
        if (at % 8 == 0 && first + count - at >= 8) {
            if (bits[at / 8] != 0xFF) {
                return false;
            }
            at += 8;
        } else if (!bit(bits, at++)) {
            return false;
        }
    }
    return true;
}

void FlatColumn::add_chunk(FlatArray chunk) {
    if (chunk.length > 0) {
        starts_.push_back(starts_.back() + chunk.length);
        chunks_.push_back(std::move(chunk));
    }
}

FlatColumn::Element FlatColumn::element(std::int64_t i) const {
    if (chunks_.size() == 1) {
        return {&chunks_.front(), i};
    }
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), i);
    const auto chunk = static_cast<std::size_t>(after - starts_.begin()) - 1;
    return {&chunks_[chunk], i - starts_[chunk]};
}

bool FlatColumn::is_missing(const Element& element) const {
    return type_.layout == Layout::null || is_null(*element.array, element.at);
}

void FlatColumn::prefetch(const Element& element) const {
    const FlatArray& array = *element.array;
    if (type_.layout == Layout::number) {
        quadrat::prefetch(static_cast<const char*>(array.data) +
                          (array.first + element.at) * static_cast<std::int64_t>(item_size(type_.kind)));
    } else if (type_.layout == Layout::list && type_.offset_bytes != 0) {
        quadrat::prefetch(static_cast<const char*>(array.offsets) + (array.first + element.at) * type_.offset_bytes);
    }
    if (array.validity != nullptr) {
        quadrat::prefetch(array.validity + (array.first + element.at) / 8);
    }
}

bool FlatColumn::row(const Element& element, Row* out, Trailing* trailing) const {
    const FlatArray& array = *element.array;
    trailing->clear();
    if (type_.layout == Layout::null || is_null(array, element.at)) {
        return false;
    }
    if (is_plain(type_)) {
        *out = row_at(type_.kind, array.data, array.first + element.at, 1);
        return true;
    }
    return list_row(type_, array, element.at, out, trailing);
}

bool FlatColumn::rows(const Element& element, std::int64_t count, std::vector<Row>* out) const {
    if (type_.layout != Layout::list || is_null(*element.array, element.at)) {
        return false;
    }
    const FlatArray& lists = *element.array->items;
    const Bounds part = bounds(type_, *element.array, element.at, lists.length);
    bool all = count <= part.end - part.begin;
    for (std::int64_t i = 0; all && i < count; ++i) {
        Row row;
        Trailing trailing;
        all = !is_null(lists, part.begin + i) && list_row(*type_.item, lists, part.begin + i, &row, &trailing) &&
              trailing.empty();
        out->push_back(row);
    }
    return all;
}

bool FlatColumn::list_row(const FlatType& type, const FlatArray& array, std::int64_t at, Row* out, Trailing* trailing) {
    if (type.layout != Layout::list) {
        return false;
    }
    Bounds part = bounds(type, array, at, array.items->length);
    const std::int64_t length = part.end - part.begin;
    const FlatType* item = type.item.get();
    const FlatArray* items = array.items.get();
    while (is_there(*items, part) && item->layout == Layout::list && part.begin < part.end) {
        trailing->push_back(even_width(*item, *items, &part));
        if (trailing->back() < 0) {
            return false;
        }
        items = items->items.get();
        item = item->item.get();
    }
    if (length == 0 && item->layout == Layout::list && type.told.empty()) {
        for (; item->layout == Layout::list; item = item->item.get()) {
            trailing->push_back(item->offset_bytes == 0 ? item->fixed : -1);
        }
        *out = row_at(item->kind, nullptr, 0, 0);
        return is_plain(*item);
    }
    if (!is_plain(*item) || !is_there(*items, part) || !is_as_told(type, length, *trailing)) {
        return false;
    }
    *out = row_at(item->kind, items->data, items->first + part.begin, length);
    prefetch_lines(out->data, std::min(bytes_ahead, (part.end - part.begin) * out->stride));
    return true;
}

py::object FlatColumn::value(const FlatType& type, const FlatArray& array, std::int64_t at) {
    if (type.is_extension) {
        return {};
    }
    if (type.layout == Layout::null || is_null(array, at)) {
        return py::none();
    }
    switch (type.layout) {
        case Layout::number:
            return number(row_at(type.kind, array.data, array.first + at, 1));
        case Layout::boolean:
            return py::bool_(bit(static_cast<const std::uint8_t*>(array.data), array.first + at));
        case Layout::text:
        case Layout::binary: {
            const Bounds part = text_bounds(type, array, at);
            const char* const begin = static_cast<const char*>(array.data) + part.begin;
            const auto size = static_cast<std::size_t>(part.end - part.begin);
            return type.layout == Layout::text ? py::object(py::str(begin, size)) : py::object(py::bytes(begin, size));
        }
        case Layout::list: {
            const Bounds part = bounds(type, array, at, array.items->length);
            py::list result(static_cast<std::size_t>(part.end - part.begin));
            for (std::int64_t i = part.begin; i < part.end; ++i) {
                py::object item = value(*type.item, *array.items, i);
                if (!item) {
                    return item;
                }
                PyList_SET_ITEM(result.ptr(), i - part.begin, item.release().ptr());
            }
            return std::move(result);
        }
        default:
            return {};
    }
}

namespace {

// Memory of an array library, which `keep` owns, as a column. offsets: [rows + 1], or 0 where each row is one token.
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

void register_flat_column(py::module_& m) {
    bind_class<FlatColumn>(m, "FlatColumn")
        .def("__len__", &FlatColumn::size)
        .def_property_readonly("kind", [](const FlatColumn& self) -> py::object {
            const FlatType* item = &self.type();  // of lists, and lists in them
            while (item->layout == Layout::list) {
                item = item->item.get();
            }
            const bool numbers = item->layout == Layout::number && item != &self.type();
            return numbers ? py::cast(item->kind) : py::object(py::none());
        });
    m.def("memory_column", &column_of_memory, "values"_a, "kind"_a, "tokens"_a, "offsets"_a, "rows"_a, "keep"_a,
          "trailing"_a = py::tuple());
}

}  // namespace quadrat
