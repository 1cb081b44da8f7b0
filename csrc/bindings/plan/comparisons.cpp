#include <algorithm>

#include "recipe.hpp"

namespace quadrat {
namespace {

constexpr std::uint32_t form_numbers = form_number | form_scalar | form_tensor_number;

// At most 15.
std::uint32_t bit_length(std::int64_t value) {
    std::uint32_t bits = 0;
    for (; value > 0 && bits < 15; value >>= 1) {
        ++bits;
    }
    return bits;
}

// Whether a column of numbers has one below 0.
bool has_negative(const Columns& columns, std::size_t index) {
    const Column& column = columns.at(index);
    if ((column.forms & ~form_numbers) != 0) {
        return false;
    }
    std::vector<double> numbers(column.rows.size());  // they stay 0 where they do not convert
    static_cast<void>(columns.numbers(index, numbers.data(), Kind::float64));
    return std::any_of(numbers.begin(), numbers.end(), [](double number) { return number < 0; });
}

// Whether a column of rows has a 0; not where they do not convert.
bool has_zero(const Columns& columns, std::size_t index) {
    const Column& column = columns.at(index);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(column.total * column.inner), 1);
    static_cast<void>(columns.flatten(index, tokens.data(), Kind::int64, column.total));
    return std::find(tokens.begin(), tokens.end(), 0) != tokens.end();
}

}  // namespace

bool Comparisons::should_compare(const Columns& columns, const py::tuple& names) const {
    constexpr std::uint32_t one_token = 1, negative = 2, zero = 4;
    constexpr std::int64_t first = 8;
    std::int64_t rows = 0, width = 0;
    std::uint32_t traits = 0;
    for (std::size_t index = 0; index < columns.columns.size(); ++index) {
        const Column& column = columns.at(index);
        rows = std::max(rows, columns.count(index));
        if ((column.forms & form_numbers) != 0) {
            traits |= has_negative(columns, index) ? negative : 0U;
            continue;
        }
        width = std::max(width, column.max_length);
        traits |= column.min_length == 1 ? one_token : 0U;
        PyObject* const name = index < names.size() ? names[index].ptr() : Py_None;
        const bool is_mask = PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "attention_mask") == 0;
        traits |= is_mask && has_zero(columns, index) ? zero : 0U;
    }
    const std::uint32_t size = traits | bit_length(rows) << 3U | bit_length(width) << 7U;
    const std::uint64_t bit = std::uint64_t{1} << size % 64U;
    const std::int64_t count = count_.fetch_add(1, std::memory_order_relaxed);
    const bool is_new = (seen_.at(size / 64U).fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
    return is_new || count < first || (count & (count - 1)) == 0;
}

}  // namespace quadrat
