// A deferred batch: what its outputs are made of, in one buffer, and where; they are made on the device it goes to.
#pragma once

#include "../plan/execute.hpp"

namespace quadrat {

// Bytes that are sent within the message to another process: passing on a file descriptor of shared memory takes
// longer.
inline constexpr std::int64_t most_in_message = 1 << 19;
inline constexpr std::int64_t alignment = 64;  // bytes: a cache line, and more than any vector load on a GPU

// Makes the object: factory(buffer, steps, places, rows, layout, masking, wrapped).
//
// buffer: a tensor of bytes. places: for each step a tuple (offsets, values, total, fill, shape):
//   offsets, values: where in the buffer the offsets of the rows lie, int64 [rows + 1], and their values; -1 where
//     there is no such thing. Values without offsets are the output as it is. Of packed rows, documents are meant.
//   total: of the values, in elements; of `longest` the length, and of labels of causal language modelling the id that
//     is ignored.
//   fill: what fills the gaps, or None where there are none.
//   shape: of the output; none for what is no array.
// layout: as BatchLayout::as_tuple has it.
// masking: of ids that are masked where they are padded, or None: (options, keys, words, set, set_size).
//   options: see PhiloxOptions in masking_options.hpp.
//   keys, words, set: where in the buffer the row keys lie, uint64 [rows], what each token is, uint8 [total], see Word,
//     and the ids that are special, as a bit each, uint64 [set_size]; -1 where there is no such thing.
struct DeferredFactory {
    py::object make;
    bool wrapped;  // whether the batch is a BatchEncoding
};

// As `execute`, to a buffer.
Status defer(const Columns& columns, const Plan& plan, const BatchLayout& layout, const Interop& interop,
             const DeferredFactory& factory, py::object* batch, std::size_t* failed);

}  // namespace quadrat
