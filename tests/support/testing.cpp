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
    m.def("position_ids", by_address(&position_ids));
    m.def("causal_labels", by_address(&causal_labels));
    m.def("special_tokens", by_address(&special_tokens));
    m.def("word_starts", by_address(&word_starts));
    m.def("row_keys", by_address(&row_keys));
    m.def("separate_rows", by_address(&separate_rows));
    m.def("fill_ends", by_address(&fill_ends));
    m.def("cu_seqlens", by_address(&cu_seqlens));
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
    m.def("seq_idx", [](Span<const std::int64_t> start, Address lengths, std::int32_t first, std::int32_t none,
                        bool wide, Address out, std::int64_t out_size) {
        return wide ? seq_idx<std::int64_t>(start, lengths, {first, none}, out, out_size)
                    : seq_idx<std::int32_t>(start, lengths, {first, none}, out, out_size);
    });
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
        const Shape shape = launch_shape(rows, width, max_blocks);
        return py::make_tuple(shape.threads_x, shape.threads_y, shape.blocks_x, shape.blocks_y);
    });
}
