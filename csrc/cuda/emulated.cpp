// quadrat._emulated: the CUDA kernels compiled as C++, for the tests. It has _cuda's functions, on addresses of the
// CPU, and those of index.hpp.
#include <pybind11/pybind11.h>

#include <algorithm>

#include "causal_labels.cuh"
#include "copy_rows.cuh"
#include "flatten_columns.cuh"
#include "pad_columns.cuh"
#include "pad_masked.cuh"
#include "philox_mask.cuh"
#include "register_columns.hpp"
#include "row_keys.cuh"
#include "separate_rows.cuh"
#include "shape.hpp"
#include "unpad.cuh"

namespace quadrat::cuda {
namespace {

// At most so many blocks, and those of them that run. Few blocks give each thread a large share, which only huge inputs
// would do otherwise.
struct Blocks {
    std::int64_t most;
    BlockRange range;
};

template <typename Call>
void start(void (*kernel)(Call), const Call& call, const Blocks& blocks) {
    if (call.rows == 0) {
        return;
    }
    const Shape shape = launch_shape(call.rows, typical_width(call), blocks.most);
    emulate(kernel, {shape.blocks_x, shape.blocks_y}, {shape.threads_x, shape.threads_y}, blocks.range, call);
}

// What is written in pieces has the blocks it needs; fewer blocks mean shorter pieces here, so that rows have several.
template <typename Call, typename Argument>
void start_pieces(void (*kernel)(Argument), Call call, const Blocks& blocks) {
    const int most_log =
        blocks.most == most_blocks ? piece_log : 4 + static_cast<int>(std::min<std::int64_t>(blocks.most, 8));
    const std::int64_t count = idle(call) ? 0 : plan(call, most_log);
    emulate(kernel, {static_cast<unsigned>(count)}, {piece_threads}, blocks.range, call);
}

void launch(const CopyRows& call, const Blocks& blocks) { start_pieces(copy_rows, call, blocks); }

void launch(const PadColumns& call, const Blocks& blocks) { start_pieces(pad_columns<most_columns>, call, blocks); }

void launch(const FlattenColumns& call, const Blocks& blocks) { start_pieces(flatten_columns, call, blocks); }

void launch(const Unpad& call, const Blocks& blocks) { start_pieces(unpad, call, blocks); }

void launch(const SeparateRows& call, const Blocks& blocks) {
    with_element(call.item, [&](auto element) { start(separate_rows<decltype(element)>, call, blocks); });
}

void launch(const CausalLabels& call, const Blocks& blocks) { start(causal_labels, call, blocks); }

void launch(const RowKeys& call, const Blocks& blocks) {
    std::fill_n(call.out, call.rows, std::uint64_t{0});
    start(row_keys, call, blocks);
}

void launch(const PadMasked& call, const Blocks& blocks) { start(pad_masked, call, blocks); }

void launch(const PhiloxMask& call, const Blocks& blocks) { start(philox_mask, call, blocks); }

py::tuple pair(const Run& run) { return py::make_tuple(run.first, run.length); }

}  // namespace
}  // namespace quadrat::cuda

PYBIND11_MODULE(_emulated, m, pybind11::mod_gil_not_used()) {
    namespace py = pybind11;
    using namespace quadrat::cuda;
    m.doc() = "quadrat's CUDA kernels compiled as C++, to be tested without a GPU.";
    const auto run = [](const auto& call, std::int64_t max_blocks, unsigned first_block, unsigned last_block) {
        require(max_blocks >= 1 && max_blocks <= most_blocks, "max_blocks must be 1 to 65535");
        launch(call, Blocks{max_blocks, {first_block, last_block}});
    };
    const auto most = py::arg("max_blocks") = most_blocks;
    const auto first = py::arg("first_block") = 0, last = py::arg("last_block") = most_piece_blocks;
    register_kernels<std::int64_t, unsigned, unsigned>(m, run, most, first, last);
    register_columns<std::int64_t, unsigned, unsigned>(m, run, most, first, last);
    m.def("source_run",
          [](std::int64_t begin, std::int64_t end, std::int64_t size) { return pair(source_run(begin, end, size)); });
    m.def("row_length", &row_length);
    m.def("padded_run", [](std::int64_t row, std::int64_t length, std::int64_t width, bool left) {
        return pair(padded_run(row, length, width, side_of(left)));
    });
    m.def("gap_run", [](std::int64_t row, std::int64_t length, std::int64_t width, bool left) {
        return pair(gap_run(row, length, width, side_of(left)));
    });
    m.def("flat_run", [](std::int64_t start, std::int64_t length, std::int64_t size) {
        return pair(flat_run(start, length, size));
    });
    m.def("token_run", [](std::int64_t begin, std::int64_t end, std::int64_t origin, std::int64_t size) {
        return pair(token_run(begin, end, origin, size));
    });
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
