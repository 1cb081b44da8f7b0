// quadrat._emulated: the CUDA kernels compiled as C++, for the tests. It has _cuda's functions, on addresses of the
// CPU, and those of index.hpp.
#include <pybind11/pybind11.h>

#include <algorithm>

#include "launchers.hpp"
#include "register.hpp"

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

PYBIND11_MODULE(_emulated, m) {
    namespace py = pybind11;
    using namespace quadrat::cuda;
    m.doc() = "quadrat's CUDA kernels compiled as C++, to be tested without a GPU.";
    quadrat::translate_own_exceptions();
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
    m.def("flat_run", &flat_run);
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
