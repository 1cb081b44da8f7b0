#include "arrow_layout.hpp"

#include <charconv>
#include <cstring>
#include <system_error>

namespace quadrat::arrow {
namespace {

using Layout = FlatType::Layout;

constexpr int most_levels = 64;                                // of lists in lists, as in Arrow's own import
constexpr std::int64_t most_elements = std::int64_t{1} << 56;  // beyond any memory: sizes in bytes do not overflow

bool number_of_format(char letter, Kind* out) {
    constexpr const char* letters = "cCsSiIlLfge";
    constexpr Kind kinds[] = {Kind::int8,  Kind::uint8,  Kind::int16,   Kind::uint16,  Kind::int32,  Kind::uint32,
                              Kind::int64, Kind::uint64, Kind::float32, Kind::float64, Kind::float16};
    const char* const found = std::strchr(letters, letter);
    if (letter == '\0' || found == nullptr) {
        return false;
    }
    *out = kinds[found - letters];
    return true;
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
    for (bool more = true; more; at += more ? 2 : 0) {
        std::int64_t size = -1;
        const bool unknown = text.compare(static_cast<std::size_t>(at - text.data()), 4, "null") == 0;
        const auto [read, error] =
            unknown ? std::from_chars_result{at + 4, std::errc()} : std::from_chars(at, end, size);
        shape.push_back(size);
        at = read;
        more = end - at >= 2 && at[0] == ',' && at[1] == ' ';
        if (error != std::errc() || (!unknown && size < 0) || (!more && (at == end || *at != ']'))) {
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

}  // namespace

void refuse_text(const Where& where, const std::string& what) {
    const bool named = where.column != nullptr && *where.column != '\0';
    const std::string level = where.depth > 1 ? message(", level ", where.depth) : "";
    throw py::value_error(message(named ? message("column '", where.column, "': ") : "", "the Arrow data is damaged: ",
                                  what, where.depth > 0 ? message(" (the elements of its lists", level, ")") : ""));
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
    if (format.size() == 1 && number_of_format(format[0], &type.kind)) {
        type.layout = Layout::number;
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

}  // namespace quadrat::arrow
