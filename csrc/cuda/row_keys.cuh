// row_keys: what tells rows apart by their tokens. A sum, in whatever order the threads come: the CPU's bit for bit.
#pragma once

#include "kernel.cuh"

namespace quadrat::cuda {

__global__ void row_keys(RowKeys call) {
    const Share rows = share_of_rows();
    const Share tokens = share_of_elements();
    for (std::int64_t row = rows.first; row < call.rows; row += rows.step) {
        const std::int64_t begin = call.offsets[row], end = call.offsets[row + 1];
        const Run source = call.flat ? source_run(begin, end, call.values_size)
                                     : padded_run(row, row_length(begin, end, call.width), call.width, call.side);
        std::uint64_t sum = tokens.first == 0 ? key_of_token(source.length, -1) : 0;
        for (std::int64_t k = tokens.first; k < source.length; k += tokens.step) {
            sum += key_of_token(call.values[source.first + k], k);
        }
        sum = sum_of_lanes(sum);  // a warp works at one row: all of it is here
        if (threadIdx.x % warp_lanes == 0) {
            atomicAdd(reinterpret_cast<unsigned long long*>(call.out + row), sum);
        }
    }
}

}  // namespace quadrat::cuda
