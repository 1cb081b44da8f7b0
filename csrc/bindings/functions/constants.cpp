// The numbers that Python shares with C++, as plain ints of the module. Each is defined once, in C++, and named here.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>

#include "../../cuda/calls.hpp"
#include "../../kernels/choose_words.hpp"
#include "../../kernels/mask_tokens.hpp"
#include "../../kernels/status.hpp"
#include "../deferred/defer_buffer.hpp"
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

const char* words_for(Code code) {
    switch (code) {
        case Code::ok:
            return "is as it should be";
        case Code::row_too_long:
            return "is longer than the padded length";
        case Code::bad_start:
            return "starts outside the output";
        case Code::no_conversion:
            return "holds numbers of a kind that does not convert to the output's without loss";
        case Code::out_of_range:
            return "holds a number that does not fit the output's dtype";
        case Code::wrong_type:
            return "holds something that is not a number of the row's kind";
        case Code::changed:
            return "changed while it was read";
        case Code::bad_argument:
            return "has no valid length";
        case Code::wrong_length:
            return "is not as long as its tokens";
    }
    throw py::value_error("no status has the code " + std::to_string(static_cast<int>(code)));
}

// (code, row, position), as `report` has it.
std::string explain(const std::tuple<std::uint8_t, std::int64_t, std::int64_t>& failure) {
    const auto [code, row, position] = failure;
    return (row < 0 ? "the column" : "row " + std::to_string(row)) +
           (position < 0 ? "" : ", position " + std::to_string(position)) + " " + words_for(static_cast<Code>(code));
}

}  // namespace

void register_constants(py::module_& m) {
    add<Form>(m, {{"FORM_LIST", form_list},
                  {"FORM_TUPLE", form_tuple},
                  {"FORM_ARRAY", form_array},
                  {"FORM_TENSOR", form_tensor},
                  {"FORM_NUMBER", form_number},
                  {"FORM_OTHER", form_other},
                  {"FORM_SCALAR", form_scalar},
                  {"FORM_TENSOR_NUMBER", form_tensor_number}});
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
                    {"ACTION_LONGEST", Action::longest}});
    add<Code>(m, {{"CODE_ROW_TOO_LONG", Code::row_too_long},
                  {"CODE_BAD_START", Code::bad_start},
                  {"CODE_NO_CONVERSION", Code::no_conversion},
                  {"CODE_OUT_OF_RANGE", Code::out_of_range},
                  {"CODE_WRONG_TYPE", Code::wrong_type},
                  {"CODE_CHANGED", Code::changed},
                  {"CODE_BAD_ARGUMENT", Code::bad_argument},
                  {"CODE_WRONG_LENGTH", Code::wrong_length}});
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
    add<cuda::FlatSource>(m, {{"FLAT_VALUES", cuda::FlatSource::values},
                              {"FLAT_SEPARATED", cuda::FlatSource::separated},
                              {"FLAT_POSITIONS", cuda::FlatSource::positions},
                              {"FLAT_SEQUENCES", cuda::FlatSource::sequences},
                              {"FLAT_BOUNDS", cuda::FlatSource::bounds}});
    add<std::int64_t>(m, {{"MOST_TOKENS", most_tokens},
                          {"MOST_COLUMNS", cuda::most_columns},
                          {"ALIGNMENT", alignment},
                          {"MOST_IN_MESSAGE", most_in_message}});
    m.def("explain", &explain, py::arg("failure"));
}

}  // namespace quadrat
