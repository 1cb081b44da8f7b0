// The numbers that Python shares with C++, as plain ints by name. Each is defined once, in C++, and named here.
#include <pybind11/numpy.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <tuple>

#include "../../cuda/calls.hpp"
#include "../../kernels/batches.hpp"
#include "../../kernels/pack_rows.hpp"
#include "../classes.hpp"
#include "../input/walk.hpp"
#include "../labels/labels.hpp"
#include "../plan/recipe.hpp"

namespace quadrat {
namespace {

// Python finds a value of an enum by its name alone, so a new one moves no other. The name is that of C++ in capitals,
// without what the values have in common: Action::pad and form_list are ACTIONS.PAD and FORMS.LIST.
template <typename Enum>
void add(py::module_& m, const char* group, std::string_view names, std::initializer_list<Enum> values) {
    py::object numbers = py::module_::import("types").attr("SimpleNamespace")();
    for (const Enum value : values) {
        std::string name(names.substr(0, names.find(',')));
        names.remove_prefix(std::min(names.size(), name.size() + 2));
        const std::size_t scope = name.find("::");
        name.erase(0, scope == std::string::npos ? name.find('_') + 1 : scope + 2);
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
        numbers.attr(name.c_str()) = static_cast<std::uint64_t>(value);
    }
    m.attr(group) = std::move(numbers);
}
#define QUADRAT_ADD(group, ...) add(m, group, #__VA_ARGS__, {__VA_ARGS__})

// What is wrong with a row, by Code.
constexpr const char* reasons[] = {
    "",  // ok
    "is longer than the padded length",
    "starts outside the output",
    "holds numbers whose dtype does not convert to the output's without loss",
    "holds a number that does not fit the output's dtype",
    "mixes types of numbers, or holds something that is not a number",
    "changed while it was read",
    "does not fit the requested width",
    "is not as long as its tokens",
    "is not a list as long as the first one of the column",
};
static_assert(std::size(reasons) == static_cast<std::size_t>(Code::uneven) + 1, "each code has its words");

// What a failed status, (code, row, position), says.
std::string explain(const std::tuple<std::uint8_t, std::int64_t, std::int64_t>& failure) {
    const auto [code, row, position] = failure;
    if (code == 0 || code >= std::size(reasons)) {
        throw py::value_error(message("no status has the code ", code));
    }
    return message(row < 0 ? "the column" : message("row ", row), position < 0 ? "" : message(", position ", position),
                   " ", reasons[code]);
}

// What this build is: for show_config().
void add_config(py::module_& m) {
    m.attr("__version__") = QUADRAT_VERSION;
    py::list kinds;
    std::for_each(std::begin(kind_names), std::prev(std::end(kind_names)),
                  [&](const char* name) { kinds.append(name); });
    m.attr("kinds") = py::tuple(kinds);  // those of NumPy, which has no bfloat16, the last one
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
    using Fact = Guard::Fact;
    using cuda::FlatContent;
    QUADRAT_ADD("FORMS", form_list, form_tuple, form_array, form_tensor, form_number, form_other, form_scalar,
                form_tensor_number, form_deep, form_derived);
    QUADRAT_ADD("LENGTHS", lengths_equal, lengths_aligned, lengths_full, lengths_deep, lengths_derived);
    QUADRAT_ADD("TRAITS", trait_starts, trait_empty, trait_backward, trait_over, trait_none, trait_text, trait_nothing,
                trait_shaped);
    QUADRAT_ADD("ACTIONS", Action::pad, Action::pad_own, Action::stack, Action::numbers, Action::mask, Action::hold,
                Action::labels, Action::join, Action::shift, Action::positions, Action::sequences, Action::bounds,
                Action::longest, Action::token_bounds, Action::documents, Action::gaps, Action::total, Action::constant,
                Action::row_positions, Action::chain, Action::chain_mask, Action::chain_marks, Action::concat,
                Action::pad_axes, Action::axes_mask);
    QUADRAT_ADD("FACTS", Fact::type, Fact::entry, Fact::absent, Fact::attribute, Fact::items, Fact::call, Fact::own,
                Fact::own_absent, Fact::own_set);
    QUADRAT_ADD("WAYS", Way::opaque, Way::dict, Way::wrapper, Way::chain);
    QUADRAT_ADD("GENERATOR_TYPES", GeneratorType::torch, GeneratorType::torch_double, GeneratorType::numpy,
                GeneratorType::numpy_legacy, GeneratorType::python);
    QUADRAT_ADD("WORD_PIECES", piece_joins, piece_apart, piece_kept, piece_missing);
    QUADRAT_ADD("CODES", Code::row_too_long, Code::bad_start, Code::no_conversion, Code::out_of_range, Code::wrong_type,
                Code::changed, Code::bad_argument, Code::wrong_length, Code::uneven);
    QUADRAT_ADD("WORD_FORMATS", WordFormat::none, WordFormat::offsets, WordFormat::word_ids);
    QUADRAT_ADD("WORDS", word_inside, word_begins, word_none);
    QUADRAT_ADD("FITS", Fit::best, Fit::first, Fit::in_order);
    QUADRAT_ADD("FLAT_CONTENTS", FlatContent::values, FlatContent::separated, FlatContent::positions,
                FlatContent::sequences, FlatContent::bounds);
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
