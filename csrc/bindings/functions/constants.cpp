// The numbers that Python shares with C++, as plain ints of the module. Each is defined once, in C++, and named here.
#include <pybind11/numpy.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>

#include "../../cuda/calls.hpp"
#include "../../kernels/batch.hpp"
#include "../../kernels/choose_words.hpp"
#include "../../kernels/mask_tokens.hpp"
#include "../../kernels/pack_rows.hpp"
#include "../../kernels/simd.hpp"
#include "../../kernels/status.hpp"
#include "../deferred/defer.hpp"
#include "../input/columns.hpp"
#include "../input/generator.hpp"
#include "../input/walk.hpp"
#include "../labels/labels.hpp"
#include "../plan/guard.hpp"
#include "../plan/plan.hpp"
#include "../register.hpp"

namespace quadrat {
namespace {

// Names all values of an enum, in their order.
template <auto last, std::size_t count>
void add(py::module_& m, const char* prefix, const char* const (&names)[count]) {
    static_assert(static_cast<std::size_t>(last) == count - 1);
    for (std::size_t i = 0; i < count; ++i) {
        m.attr((std::string(prefix) + names[i]).c_str()) = i;
    }
}

// The values from `first` to `last` of an enum: numbers, or bits. Python names them where it unpacks them.
template <typename Enum>
py::tuple values_of(Enum first, Enum last) {
    py::list values;
    const auto begin = static_cast<unsigned>(first), end = static_cast<unsigned>(last);
    for (unsigned value = begin; value <= end; value += begin == 0 ? 1 : value) {
        values.append(value);
    }
    return py::tuple(values);
}

struct Reason {
    Code code;
    const char* name;
    const char* words;  // what is wrong with the row
};

constexpr Reason reasons[] = {
    {Code::row_too_long, "ROW_TOO_LONG", "is longer than the padded length"},
    {Code::bad_start, "BAD_START", "starts outside the output"},
    {Code::no_conversion, "NO_CONVERSION", "holds numbers whose dtype does not convert to the output's without loss"},
    {Code::out_of_range, "OUT_OF_RANGE", "holds a number that does not fit the output's dtype"},
    {Code::wrong_type, "WRONG_TYPE", "mixes types of numbers, or holds something that is not a number"},
    {Code::changed, "CHANGED", "changed while it was read"},
    {Code::bad_argument, "BAD_ARGUMENT", "has no valid length"},
    {Code::wrong_length, "WRONG_LENGTH", "is not as long as its tokens"},
};

static_assert(std::size(reasons) == static_cast<std::size_t>(Code::wrong_length), "each code but ok has its words");

// What a failed status, (code, row, position), says.
std::string explain(const std::tuple<std::uint8_t, std::int64_t, std::int64_t>& failure) {
    const auto [code, row, position] = failure;
    for (const Reason& reason : reasons) {
        if (static_cast<std::uint8_t>(reason.code) == code) {
            return (row < 0 ? "the column" : "row " + std::to_string(row)) +
                   (position < 0 ? "" : ", position " + std::to_string(position)) + " " + reason.words;
        }
    }
    throw py::value_error("no status has the code " + std::to_string(code));
}

// What this build is: for quadrat.show_config().
void add_config(py::module_& m) {
    m.attr("__version__") = QUADRAT_VERSION;
    py::list kinds;
    for (const char* name : kind_names) {
        kinds.append(name);
    }
    m.attr("kinds") = py::tuple(kinds);
    m.def("simd_level", &simd_level);
    m.def("compiler", [] {
#if defined(__clang__)
        return std::string("clang ") + __clang_version__;
#elif defined(__GNUC__)
        return std::string("gcc ") + __VERSION__;
#elif defined(_MSC_VER)
        return "msvc " + std::to_string(_MSC_VER);
#else
        return std::string("unknown");
#endif
    });
    m.def("address", [](const py::array& array) { return reinterpret_cast<std::uintptr_t>(array.data()); }, "array"_a);
}

}  // namespace

void register_constants(py::module_& m) {
    add_config(m);
    m.attr("FORMS") = values_of(form_list, form_deep);
    m.attr("LENGTHS") = values_of(lengths_equal, lengths_deep);
    m.attr("ACTIONS") = values_of(Action::pad, Action::chain_marks);
    m.attr("FACTS") = values_of(Guard::Fact::type, Guard::Fact::own_absent);
    m.attr("WAYS") = values_of(Way::opaque, Way::wrapper);
    m.attr("SOURCES") = values_of(Source::torch, Source::python);
    m.attr("PIECES") = values_of(piece_joins, piece_missing);
    for (const Reason& reason : reasons) {
        m.attr(("CODE_" + std::string(reason.name)).c_str()) = static_cast<int>(reason.code);
    }
    add<WordSource::word_ids>(m, "WORDS_FROM_", {"NOTHING", "OFFSETS", "WORD_IDS"});
    add<word_none>(m, "WORD_", {"INSIDE", "BEGINS", "NONE"});
    add<Fit::in_order>(m, "FIT_", {"BEST", "FIRST", "IN_ORDER"});
    add<cuda::FlatSource::bounds>(m, "FLAT_", {"VALUES", "SEPARATED", "POSITIONS", "SEQUENCES", "BOUNDS"});
    m.attr("MOST_TOKENS") = most_tokens;
    m.attr("MOST_BUDGET") = most_budget;
    m.attr("MOST_COLUMNS") = cuda::most_columns;
    m.attr("MASK_SEGMENT") = cuda::mask_segment;
    m.attr("MOST_IN_PACK") = most_in_pack;
    m.attr("ALIGNMENT") = alignment;
    m.attr("MOST_IN_MESSAGE") = most_in_message;
    m.def("explain", &explain, "failure"_a);
}

}  // namespace quadrat
