// A column that lies in flat memory: numbers, or lists of numbers, in chunks, as Arrow keeps them. Its rows are
// pointers into it; what is not a row of numbers, as text and nulls, becomes the Python object that stands for it.
#pragma once

#include "interop.hpp"

namespace quadrat {

// What the memory of a column means.
struct FlatType {
    enum class Layout : std::uint8_t { number, boolean, text, binary, list, null, other };

    Layout layout = Layout::other;
    Kind kind = Kind::int64;  // of numbers
    int offset_bytes = 0;     // of lists and text: 4, 8, or 0 for lists of `fixed` elements each
    std::int64_t fixed = 0;
    Trailing told;  // how long its lists, and those in them, are to be, says an extension type; -1: of any length
    // Numbers are rows, but Python objects are what the library makes of them that has the type.
    bool is_extension = false;
    std::string format;  // Arrow's name of the type, for messages
    std::shared_ptr<const FlatType> item;
};

// A chunk: elements [first, first + length) of these buffers. Owns nothing.
struct FlatArray {
    std::int64_t first = 0;
    std::int64_t length = 0;
    const std::uint8_t* validity = nullptr;  // a bit per element, or null where all are there
    const void* offsets = nullptr;           // of lists and text
    const void* data = nullptr;              // numbers, bits or text
    std::shared_ptr<const FlatArray> items;  // of lists
};

// Whether `count` bits from the first on are all 1.
bool all_set(const std::uint8_t* bits, std::int64_t first, std::int64_t count);

class FlatColumn {
public:
    // What keeps the memory of the chunks alive: what another library released to us, or an object.
    FlatColumn(FlatType type, std::shared_ptr<const void> released)
        : type_(std::move(type)), released_(std::move(released)) {}
    FlatColumn(FlatType type, py::object owner) : type_(std::move(type)), owner_(std::move(owner)) {}

    void traverse(Visitor& visit) const { visit(owner_); }

    void add_chunk(FlatArray chunk);
    std::int64_t size() const { return starts_.back(); }
    const FlatType& type() const { return type_; }

    // An element to look at: its chunk, and its place there.
    struct Element {
        const FlatArray* array;
        std::int64_t at;
    };
    // i: from 0 to size() - 1.
    Element element(std::int64_t i) const;
    bool is_missing(const Element& element) const;
    // Asks for what `row` will read.
    void prefetch(const Element& element) const;
    // The numbers of an element: one for a column of numbers, else a row of them, of the dimensions `trailing` after
    // the first, -1 where it is empty and its type does not tell; false when they are not plain numbers, or lists
    // differ in length. Throws ValueError when the memory contradicts itself.
    bool row(const Element& element, Row* out, Trailing* trailing) const;
    // The first `count` rows of numbers of an element of a column of lists of them; false when there are fewer, or they
    // are not plain numbers. Throws ValueError as `row` does.
    bool rows(const Element& element, std::int64_t count, std::vector<Row>* out) const;
    // Whether each element is a single number.
    bool is_numbers() const { return type_.layout == FlatType::Layout::number; }
    // An element as Python knows it, an int, str, list or the like; null where the type has no such form here.
    py::object value(const Element& element) const { return value(type_, *element.array, element.at); }

private:
    // A list of plain numbers, or of equally long lists of them, as a row.
    static bool list_row(const FlatType& type, const FlatArray& array, std::int64_t at, Row* out, Trailing* trailing);
    static py::object value(const FlatType& type, const FlatArray& array, std::int64_t at);

    FlatType type_;
    std::shared_ptr<const void> released_;
    py::object owner_;
    std::vector<FlatArray> chunks_;
    std::vector<std::int64_t> starts_{0};
};

}  // namespace quadrat
