// The numbers that Python shares with C++, as plain ints of the module. Each is defined once, in C++, and named here.
#include <pybind11/numpy.h>

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

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

template <typename Number>
void add(py::module_& m, std::initializer_list<std::pair<const char*, Number>> constants) {
    for (const auto& [name, value] : constants) {
        m.attr(name) = static_cast<std::int64_t>(value);
    }
}

struct Reason {
    Code code;
    const char* name;
    const char* words;  // what is wrong with the row
};

constexpr Reason reasons[] = {
    {Code::row_too_long, "ROW_TOO_LONG", "is longer than the padded length"},
    {Code::bad_start, "BAD_START", "starts outside the output"},
    {Code::no_conversion, "NO_CONVERSION",
     "holds numbers of a kind that does not convert to the output's without loss"},
    {Code::out_of_range, "OUT_OF_RANGE", "holds a number that does not fit the output's dtype"},
    {Code::wrong_type, "WRONG_TYPE",
     "holds something that is no number, or a number of another type than those before it"},
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
    add<Form>(m, {{"FORM_LIST", form_list},
                  {"FORM_TUPLE", form_tuple},
                  {"FORM_ARRAY", form_array},
                  {"FORM_TENSOR", form_tensor},
                  {"FORM_NUMBER", form_number},
                  {"FORM_OTHER", form_other},
                  {"FORM_SCALAR", form_scalar},
                  {"FORM_TENSOR_NUMBER", form_tensor_number}});
    add<Lengths>(
        m, {{"LENGTHS_EQUAL", lengths_equal}, {"LENGTHS_ALIGNED", lengths_aligned}, {"LENGTHS_FULL", lengths_full}});
    add<Action>(m, {{"ACTION_PAD", Action::pad},
                    {"ACTION_PAD_OWN", Action::pad_own},
                    {"ACTION_STACK", Action::stack},
                    {"ACTION_NUMBERS", Action::numbers},
                    {"ACTION_MASK", Action::mask},
                    {"ACTION_HOLD", Action::hold},
                    {"ACTION_LABELS", Action::labels},
                    {"ACTION_JOIN", Action::join},
                    {"ACTION_SHIFT", Action::shift},
                    {"ACTION_POSITIONS", Action::positions},
                    {"ACTION_SEQUENCES", Action::sequences},
                    {"ACTION_BOUNDS", Action::bounds},
                    {"ACTION_LONGEST", Action::longest},
                    {"ACTION_TOKEN_BOUNDS", Action::token_bounds},
                    {"ACTION_DOCUMENTS", Action::documents},
                    {"ACTION_GAPS", Action::gaps},
                    {"ACTION_TOTAL", Action::total},
                    {"ACTION_CONSTANT", Action::constant},
                    {"ACTION_ROW_POSITIONS", Action::row_positions},
                    {"ACTION_CHAIN", Action::chain},
                    {"ACTION_CHAIN_MASK", Action::chain_mask},
                    {"ACTION_CHAIN_MARKS", Action::chain_marks}});
    for (const Reason& reason : reasons) {
        m.attr(("CODE_" + std::string(reason.name)).c_str()) = static_cast<int>(reason.code);
    }
    add<Guard::Fact>(m, {{"FACT_TYPE", Guard::Fact::type},
                         {"FACT_ENTRY", Guard::Fact::entry},
                         {"FACT_ABSENT", Guard::Fact::absent},
                         {"FACT_ATTRIBUTE", Guard::Fact::attribute},
                         {"FACT_ITEMS", Guard::Fact::items},
                         {"FACT_CALL", Guard::Fact::call},
                         {"FACT_OWN", Guard::Fact::own},
                         {"FACT_OWN_ABSENT", Guard::Fact::own_absent}});
    add<Way>(m, {{"WAY_OPAQUE", Way::opaque}, {"WAY_DICT", Way::dict}, {"WAY_WRAPPER", Way::wrapper}});
    add<Source>(m, {{"SOURCE_TORCH", Source::torch},
                    {"SOURCE_TORCH_DOUBLE", Source::torch_double},
                    {"SOURCE_NUMPY", Source::numpy},
                    {"SOURCE_NUMPY_LEGACY", Source::numpy_legacy},
                    {"SOURCE_PYTHON", Source::python}});
    add<WordSource>(m, {{"WORDS_FROM_NOTHING", WordSource::none},
                        {"WORDS_FROM_OFFSETS", WordSource::offsets},
                        {"WORDS_FROM_WORD_IDS", WordSource::word_ids}});
    add<Word>(m, {{"WORD_INSIDE", word_inside}, {"WORD_BEGINS", word_begins}, {"WORD_NONE", word_none}});
    add<Piece>(m, {{"PIECE_JOINS", piece_joins},
                   {"PIECE_APART", piece_apart},
                   {"PIECE_KEPT", piece_kept},
                   {"PIECE_MISSING", piece_missing}});
    add<Fit>(m, {{"FIT_BEST", Fit::best}, {"FIT_FIRST", Fit::first}, {"FIT_IN_ORDER", Fit::in_order}});
    add<cuda::FlatSource>(m, {{"FLAT_VALUES", cuda::FlatSource::values},
                              {"FLAT_SEPARATED", cuda::FlatSource::separated},
                              {"FLAT_POSITIONS", cuda::FlatSource::positions},
                              {"FLAT_SEQUENCES", cuda::FlatSource::sequences},
                              {"FLAT_BOUNDS", cuda::FlatSource::bounds}});
    add<std::int64_t>(m, {{"MOST_TOKENS", most_tokens},
                          {"MOST_BUDGET", most_budget},
                          {"MOST_COLUMNS", cuda::most_columns},
                          {"MASK_SEGMENT", cuda::mask_segment},
                          {"MASK_NOT_PLAIN", static_cast<std::int64_t>(cuda::mask_not_plain)},
                          {"MASK_NOT_IN_FRONT", static_cast<std::int64_t>(cuda::mask_not_in_front)},
                          {"MASK_NOT_AT_END", static_cast<std::int64_t>(cuda::mask_not_at_end)},
                          {"MOST_IN_PACK", most_in_pack},
                          {"ALIGNMENT", alignment},
                          {"MOST_IN_MESSAGE", most_in_message}});
    m.def("explain", &explain, "failure"_a);
}

}  // namespace quadrat
