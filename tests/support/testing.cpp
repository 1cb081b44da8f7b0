// quadrat._testing: what only the tests call. It has the CUDA kernels compiled as C++, which are _cuda's functions on
// addresses of the CPU, and the functions of index.hpp. `host` has kernels that _core has no binding of.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <vector>

#include "../../csrc/bindings/masking_options.hpp"
#include "../../csrc/cuda/launchers.hpp"
#include "../../csrc/cuda/register.hpp"
#include "../../csrc/kernels/flat_rows.hpp"
#include "../../csrc/kernels/mask_tokens.hpp"
#include "../../csrc/kernels/padded_rows.hpp"
#include "../../csrc/kernels/philox_mask.hpp"

namespace quadrat::cuda {
namespace {

// Few blocks give each thread a large share, and rows several pieces, which only huge inputs would do otherwise.
struct EmulatedQueue {
    enum Error : std::uint8_t { success, too_many_blocks };

    std::int64_t most_blocks;
    int piece_log;
    BlockRange range;

    template <typename Call>
    Error run(void (*kernel)(Call), const Shape& shape, const Call& call) const {
        emulate(kernel, {shape.blocks_x, shape.blocks_y}, {shape.threads_x, shape.threads_y}, range, call);
        return success;
    }

    Error clear(void* out, std::size_t bytes) const {
        std::fill_n(static_cast<unsigned char*>(out), bytes, static_cast<unsigned char>(0));
        return success;
    }
};

}  // namespace
}  // namespace quadrat::cuda

// A run is (first, length).
template <>
struct pybind11::detail::type_caster<quadrat::cuda::Run> {
    static constexpr auto name = const_name("tuple[int, int]");

    static handle cast(const quadrat::cuda::Run& run, return_value_policy, handle) {
        return pybind11::make_tuple(run.first, run.length).release();
    }
};

namespace quadrat {
namespace {

void register_host_kernels(py::module_& m) {
    m.def(
        "position_ids",
        [](Address lengths, std::int64_t rows, std::int64_t start, Address out, std::int64_t out_size) {
            return position_ids({lengths, rows}, start, out, out_size);
        },
        "lengths"_a, "rows"_a, "start"_a, "out"_a, "out_size"_a);
    m.def(
        "causal_labels",
        [](Address ids, std::int64_t count, std::int64_t pad_id, Address labels) {
            causal_labels(ids, count, pad_id, labels);
        },
        "ids"_a, "count"_a, "pad_id"_a, "labels"_a);
    m.def(
        "special_tokens",
        [](Address ids, std::int64_t count, Address set, std::int64_t set_size, Address out) {
            special_tokens(ids, count, {set, set_size}, out);
        },
        "ids"_a, "count"_a, "set"_a, "set_size"_a, "out"_a);
    m.def(
        "word_starts",
        [](Address places, bool offsets, Address special, std::int64_t length, Address words) {
            word_starts(places, offsets, special, length, words);
        },
        "places"_a, "offsets"_a, "special"_a, "length"_a, "words"_a);
    m.def(
        "row_keys",
        [](Address values, std::int64_t values_size, Address start, Address lengths, std::int64_t rows, Address out) {
            return row_keys({values, values_size}, {start, rows}, lengths, out);
        },
        "values"_a, "values_size"_a, "start"_a, "lengths"_a, "rows"_a, "out"_a);
    m.def(
        "philox_mask",
        [](const PhiloxOptions& options, Address row_keys, Address start, Address lengths, std::int64_t rows,
           Address words, Address ids, Address labels, std::int64_t count) {
            return philox_mask(checked_masking(options), {row_keys, rows}, start, lengths, count, words, ids, labels);
        },
        "options"_a, "row_keys"_a, "start"_a, "lengths"_a, "rows"_a, "words"_a, "ids"_a, "labels"_a, "count"_a);
    // Both ways the words are computed: by one counter, and for n places in a row.
    m.def(
        "philox",
        [](std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key, int n) {
            const rng::Philox at{{counter[0], counter[1], counter[2], counter[3]}, {key[0], key[1]}};
            const rng::PhiloxWords words = rng::philox(at);
            const int count = std::clamp(n, 0, rng::philox_most);
            std::vector<std::uint32_t> run(rng::philox_most);
            rng::philox_run(at, count, run.data());
            run.resize(static_cast<std::size_t>(count));
            return py::make_tuple(py::make_tuple(words.word[0], words.word[1], words.word[2], words.word[3]), run);
        },
        "counter"_a, "key"_a, "n"_a);
    m.def(
        "separate_rows",
        [](Address start, std::int64_t rows, Kind kind, Address value, Address out, std::int64_t out_size) {
            return separate_rows({start, rows}, kind, value, out, out_size);
        },
        "start"_a, "rows"_a, "kind"_a, "value"_a, "out"_a, "out_size"_a);
    m.def(
        "fill_ends",
        [](Address start, Address lengths, std::int64_t rows, std::int64_t inner, Kind kind, Address value, Address out,
           std::int64_t out_size) { return fill_ends({start, rows + 1}, lengths, inner, kind, value, out, out_size); },
        "start"_a, "lengths"_a, "rows"_a, "inner"_a, "kind"_a, "value"_a, "out"_a, "out_size"_a);
    m.def(
        "seq_idx",
        [](Address start, Address lengths, std::int64_t rows, std::int32_t first, std::int32_t none, bool wide,
           Address out, std::int64_t out_size) {
            const Span<const std::int64_t> starts{start, rows};
            return wide ? seq_idx<std::int64_t>(starts, lengths, {first, none}, out, out_size)
                        : seq_idx<std::int32_t>(starts, lengths, {first, none}, out, out_size);
        },
        "start"_a, "lengths"_a, "rows"_a, "first"_a, "none"_a, "wide"_a, "out"_a, "out_size"_a);
    m.def(
        "count_on",
        [](Address lengths, std::int64_t rows, std::int64_t width, bool left, Address out) {
            return count_on({lengths, rows}, width, left ? Side::left : Side::right, out);
        },
        "lengths"_a, "rows"_a, "width"_a, "left"_a, "out"_a);
    m.def(
        "document_mask",
        [](Address documents, std::int64_t rows, std::int64_t width, bool causal, std::size_t item, Address values,
           Address out) { return document_mask(documents, rows, width, causal, item, values, out); },
        "documents"_a, "rows"_a, "width"_a, "causal"_a, "item"_a, "values"_a, "out"_a);
    m.def(
        "cu_seqlens",
        [](Address lengths, std::int64_t rows, Kind kind, Address out) {
            return cu_seqlens({lengths, rows}, kind, out);
        },
        "lengths"_a, "rows"_a, "kind"_a, "out"_a);
}

}  // namespace
}  // namespace quadrat

PYBIND11_MODULE(_testing, m, pybind11::mod_gil_not_used()) {
    namespace py = pybind11;
    using namespace quadrat::cuda;
    m.doc() = "Kernels that only tests call, and the CUDA kernels compiled as C++.";
    quadrat::translate_own_exceptions();
    auto host = m.def_submodule("host");
    quadrat::register_host_kernels(host);
    const auto run = [](const auto& call, std::int64_t max_blocks, unsigned first_block, unsigned last_block) {
        require(max_blocks >= 1 && max_blocks <= most_blocks, "max_blocks must be 1 to 65535");
        const int log = max_blocks == most_blocks ? piece_log : 4 + std::min(static_cast<int>(max_blocks), 8);
        const EmulatedQueue queue{max_blocks, log, {first_block, last_block}};
        require(launch_on(queue, call) == EmulatedQueue::success, "more blocks than a GPU takes");
    };
    const auto most = py::arg("max_blocks") = most_blocks;
    const auto first = py::arg("first_block") = 0, last = py::arg("last_block") = most_piece_blocks;
    register_kernels<std::int64_t, unsigned, unsigned>(m, run, most, first, last);
    m.def("source_run", &source_run);
    m.def("row_length", &row_length);
    m.def("padded_run", &padded_run);
    m.def("gap_run", &gap_run);
    m.def("token_run", &token_run);
    m.def("thread_number", &thread_number);
    m.def("quotient", &quotient);
    m.def("words_of", [](Address begin, Address end, Address data_begin, Address data_end, Address source, Address low,
                         Address high, std::uint64_t distance, int bytes) {
        const Piece piece = piece_of({begin, end, data_begin, data_end, source}, distance, bytes);
        const Words words = words_of(piece, low, high);
        return py::make_tuple(
            py::make_tuple(piece.to, piece.from, piece.begin, piece.end, piece.data_begin, piece.data_end),
            py::make_tuple(words.head, words.head_end, words.data, words.data_end, words.tail, words.tail_end));
    });
    m.def("pieces_of", [](std::int64_t rows, std::int64_t bytes, std::int64_t typical, std::int64_t total) {
        const Pieces pieces = pieces_of(rows, bytes, typical, total, piece_log);
        return py::make_tuple(pieces.per_row, pieces.blocks, pieces.lanes_log, pieces.bytes_log);
    });
    m.def("launch_shape", [](std::int64_t rows, std::int64_t width, std::int64_t max_blocks) {
        require(rows >= 1 && width >= 0 && max_blocks >= 1 && max_blocks <= most_blocks, "no shape for these numbers");
        const Shape shape = launch_shape(rows, width, max_blocks);
        return py::make_tuple(shape.threads_x, shape.threads_y, shape.blocks_x, shape.blocks_y);
    });
}
