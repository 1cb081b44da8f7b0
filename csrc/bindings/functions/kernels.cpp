// Kernels one by one, for outputs that are not a batch, and for token budgets and packs, see python/quadrat/batching.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "../../kernels/batches.hpp"
#include "../../kernels/copy_rows.hpp"
#include "../../kernels/kept_tokens.hpp"
#include "../../kernels/order_rows.hpp"
#include "../../kernels/pack_rows.hpp"
#include "../../kernels/padded_rows.hpp"
#include "../../kernels/prefix_tree.hpp"
#include "../classes.hpp"
#include "../input/python_number.hpp"
#include "../input/walk.hpp"

namespace quadrat {
namespace {

// Arrays for functions that are called once an epoch: pybind11 checks their type, and each function their size.
using Ints = py::array_t<std::int64_t, py::array::c_style>;

// Another type, or an array that is not contiguous, raises TypeError: results are not written to a converted copy.
py::arg array_arg(const char* name) { return py::arg(name).noconvert(); }

Span<const std::int64_t> span_of(const Ints& array) { return {array.data(), array.size()}; }
Span<std::int64_t> span_to(Ints& array) { return {array.mutable_data(), array.size()}; }

// Ends a kernel, with or without the GIL, where a signal handler raises, as that of Ctrl-C does.
void look_for_signals() {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
        throw py::error_already_set();
    }
}

void require_size(const Ints& array, std::int64_t size, const char* name) {
    if (array.size() != size) {
        throw py::value_error(message(name, " must have ", size, " numbers, not ", array.size()));
    }
}

// Rows of flat values by their numbers, one after the other. Row r lies between bounds[r] and bounds[r + 1].
Status copy_rows_at(Address values, std::int64_t values_size, Kind kind, const Ints& bounds, const Ints& numbers,
                    Address out, std::int64_t out_size) {
    const Span<const std::int64_t> bound = span_of(bounds);
    const auto item = static_cast<std::int64_t>(item_size(kind));
    const char* const first = values;
    std::vector<Row> rows;
    std::vector<std::int64_t> start;
    rows.reserve(static_cast<std::size_t>(numbers.size()));
    start.reserve(rows.capacity());
    std::int64_t end = 0;
    for (const std::int64_t number : span_of(numbers)) {
        const auto at = static_cast<std::int64_t>(rows.size());
        if (number < 0 || number >= bound.size - 1) {
            return {Code::bad_argument, at};
        }
        const std::int64_t begin = bound[number], length = bound[number + 1] - begin;
        if (begin < 0 || begin > values_size || length < 0 || length > values_size - begin) {
            return {Code::bad_start, at};
        }
        if (length > out_size - end) {
            return {Code::row_too_long, at};
        }
        rows.push_back({first + begin * item, length, item, kind});
        start.push_back(end);
        end += length;
    }
    return copy_rows({rows.data(), numbers.size()}, {start.data(), numbers.size()}, kind, out, out_size);
}

// As `quadrat.batching.budget.Budget` names them.
using BudgetParts = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>;

Budget budget_of(const BudgetParts& parts) {
    const auto [tokens, rows, multiple_of, padded] = parts;
    return {tokens, rows, multiple_of, padded};
}

Batch* batches_in(Ints& array) { return reinterpret_cast<Batch*>(array.mutable_data()); }

std::pair<Status, std::int64_t> pack(const Ints& lengths, std::int64_t max_length, int fit, Ints& rows, Ints& offsets,
                                     const std::optional<Ints>& counts, std::int64_t max_count) {
    const auto how = static_cast<Fit>(fit);
    std::int64_t packs = 0;
    const std::int64_t count = lengths.size();
    require_size(rows, count, "rows");
    require_size(offsets, count + 1, "offsets");
    if (counts) {
        require_size(*counts, count, "counts");
    }
    if (fit < 0 || fit > static_cast<int>(Fit::in_order)) {
        return {Status{Code::bad_argument}, packs};
    }
    const SecondLimit second{counts ? counts->data() : nullptr, max_count};
    const auto room = scratch<std::int64_t>(pack_rows_scratch(count, max_length, how, second));
    Watch watch(&look_for_signals);
    const Status status = pack_rows(span_of(lengths), max_length, how, second, room.get(), rows.mutable_data(),
                                    offsets.mutable_data(), &packs, watch);
    return {status, packs};
}

std::pair<Status, std::int64_t> plan(const Ints& lengths, const BudgetParts& budget, std::int64_t window, Ints& order,
                                     Ints& batches) {
    std::int64_t count = 0;
    require_size(order, lengths.size(), "order");
    require_size(batches, 3 * lengths.size(), "batches");
    const auto spare = scratch<std::int64_t>(std::min<std::int64_t>(window, lengths.size()));
    Watch watch(&look_for_signals);
    const Status status = plan_batches(span_of(lengths), budget_of(budget), window, span_to(order), spare.get(),
                                       batches_in(batches), &count, watch);
    return {status, count};
}

bool balance(const Ints& lengths, const BudgetParts& budget, const Ints& order, Ints& batches, std::int64_t count,
             std::int64_t ranks, const std::optional<Ints>& step_order, Ints& out) {
    const std::int64_t steps = ranks < 1 ? 0 : out.size() / 3 / ranks;
    require_size(out, 3 * steps * ranks, "out");
    require_size(batches, 3 * balance_batches_room(count, ranks, steps), "batches");
    if (step_order) {
        require_size(*step_order, steps, "step_order");
    }
    const auto room = scratch<std::int64_t>(balance_batches_scratch(count, ranks, steps));
    Watch watch(&look_for_signals);
    return static_cast<bool>(balance_batches(span_of(lengths), order.data(), budget_of(budget), batches_in(batches),
                                             count, ranks, steps, step_order ? step_order->data() : nullptr, room.get(),
                                             batches_in(out), watch));
}

bool order_rows(std::uint64_t seed, std::uint32_t epoch, std::uint32_t stream, Ints& out) {
    Watch watch(&look_for_signals);
    return static_cast<bool>(philox_order(seed, epoch, stream, span_to(out), watch));
}

// nodes: room for twice the rows, four int64 each.
std::tuple<Status, std::int64_t, std::int64_t> tree_of(Span<const std::int64_t> ids, Address positions,
                                                       Span<const std::int32_t> offsets, std::int64_t shortest,
                                                       Address nodes, Address token_of_cell, Address cell_of_token) {
    PrefixTotals totals;
    const auto room = scratch<std::int64_t>(prefix_tree_scratch(offsets.size - 1));
    const Status status =
        prefix_tree(ids, positions, offsets, shortest, room.get(), nodes, token_of_cell, cell_of_token, &totals);
    return {status, totals.nodes, totals.tokens};
}

constexpr std::int64_t steps_of_a_row = 64;  // as `Watch` counts them

// The length of a list or tuple of numbers or texts, or of a value of the type `kind` that has one dimension, as far as
// is known; -1 for all else and for null.
std::int64_t length_of(PyObject* value, const py::handle& kind, const Interop& interop) {
    if (value == nullptr) {
        return -1;
    }
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
        const std::int64_t size = PyList_CheckExact(value) ? PyList_GET_SIZE(value) : PyTuple_GET_SIZE(value);
        const py::object first = size > 0 ? item_of(value, 0) : py::object();
        Kind number{};
        return !first || number_kind(first.ptr(), &number) || PyUnicode_CheckExact(first.ptr()) ? size : -1;
    }
    // Of the other types, Python has looked at one value.
    const bool deep = interop.is_ndarray(value)
                          ? py::detail::array_proxy(value)->nd > 1
                          : interop.is_tensor(value) && py::handle(value).attr("ndim").cast<int>() > 1;
    const std::int64_t length = !deep && py::type::handle_of(value).is(kind) ? PyObject_Size(value) : -1;
    if (length < 0) {
        clear_error();
    }
    return length;
}

// Writes the lengths of rows from `first` on: of a plain mapping's value under `name` (None: of the row itself), where
// that is a list, a tuple, or of the type `kind`. Returns the first row that is something else, or how many there are.
Py_ssize_t measure(const py::list& rows, const py::object& name, bool bare, const py::handle& kind, Py_ssize_t first,
                   Ints& out, const Interop& interop) {
    std::int64_t* const lengths = out.mutable_data();
    PlainDicts dicts(interop);
    Watch watch(&look_for_signals);
    const Py_ssize_t room = out.size();
    Py_ssize_t row = first;
    for (; row < room; ++row) {
        py::object value = item_of(rows.ptr(), row);
        if (!value) {
            return row;
        }
        if (!name.is_none() && PyDict_CheckExact(value.ptr())) {
            value = Walk::lookup(value, name.ptr());
        } else if (!name.is_none()) {
            const py::object dict = PyList_CheckExact(value.ptr()) ? py::object() : dicts.dict_of(value);
            if (!dict && !bare) {
                return row;
            }
            value = dict ? Walk::lookup(dict, name.ptr()) : std::move(value);
        }
        lengths[row] = length_of(value.ptr(), kind, interop);
        if (lengths[row] < 0) {
            return row;
        }
        watch.after(steps_of_a_row);
    }
    return row;
}

}  // namespace

void register_kernels(py::module_& m) {
    m.def("measure_rows", &measure, "rows"_a, "name"_a, "bare"_a, "kind"_a, "first"_a, array_arg("out"), "interop"_a);
    m.def("pack_rows", &pack, array_arg("lengths"), "max_length"_a, "fit"_a, array_arg("rows"), array_arg("offsets"),
          array_arg("counts") = py::none(), "max_count"_a = 0, WithoutGil());
    m.def("philox_order", &order_rows, "seed"_a, "epoch"_a, "stream"_a, array_arg("out"), WithoutGil());
    m.def("plan_batches", &plan, array_arg("lengths"), "budget"_a, "window"_a, array_arg("order"), array_arg("batches"),
          WithoutGil());
    m.def("balance_batches", &balance, array_arg("lengths"), "budget"_a, array_arg("order"), array_arg("batches"),
          "count"_a, "ranks"_a, array_arg("step_order"), array_arg("out"), WithoutGil());
    m.def("copy_rows", &copy_rows_at, "values"_a, "values_size"_a, "kind"_a, array_arg("bounds"), array_arg("numbers"),
          "out"_a, "out_size"_a, WithoutGil());
    m.def(
        "check_offsets",
        [](const Ints& offsets, std::int64_t size) {
            LongestRow longest;
            const Status status = check_offsets(span_of(offsets), size, &longest);
            return py::make_tuple(status, longest.row, longest.length);
        },
        array_arg("offsets"), "size"_a);
    m.def("unpad", by_address(&unpad), "padded"_a, "width"_a, "left"_a, "offsets"_a, "token"_a, "out"_a, "out_size"_a,
          WithoutGil());
    m.def("count_masked", by_address(&count_masked), "mask"_a, "width"_a, "offsets"_a, WithoutGil());
    m.def("unpad_masked", by_address(&unpad_masked), "padded"_a, "mask"_a, "width"_a, "token"_a, "offsets"_a, "out"_a,
          WithoutGil());
    m.def("prefix_tree", &tree_of, "ids"_a, "positions"_a, "offsets"_a, "shortest"_a, "nodes"_a, "token_of_cell"_a,
          "cell_of_token"_a, WithoutGil());
    m.def("mask_indices", by_address(&mask_indices), "mask"_a, "item"_a, "size"_a, "out"_a, WithoutGil());
    m.def("take_tokens", by_address(&take_tokens), "values"_a, "size"_a, "token"_a, "indices"_a, "out"_a, WithoutGil());
    m.def("put_tokens", by_address(&put_tokens), "values"_a, "token"_a, "indices"_a, "out"_a, "size"_a, WithoutGil());
    m.def(
        "mask_layout",
        [](Address mask, std::size_t item, std::int64_t width, Span<std::int32_t> cu_seqlens, Address lengths) {
            MaskFacts facts;
            Status status;
            {
                const py::gil_scoped_release release;
                status = mask_layout(mask, item, width, cu_seqlens, lengths, &facts);
            }
            return py::make_tuple(status, facts.total, facts.longest, facts.plain);
        },
        "mask"_a, "item"_a, "width"_a, "cu_seqlens"_a, "lengths"_a);
}

}  // namespace quadrat
