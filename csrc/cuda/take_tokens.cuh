// take_tokens: tokens by their numbers, one after the other, zeros for numbers of no token. With the numbers
// turned round, -1 where there is none, that also puts tokens to their places.
#pragma once

#include "kernel.cuh"
#include "piece.hpp"
#include "shape.hpp"

namespace quadrat::cuda {

// T: the largest word that tokens are made of, wherever they lie.
template <typename T>
__global__ void take_tokens(TakeTokens call) {
    const std::int64_t token = call.token / static_cast<std::int64_t>(sizeof(T));  // in words
    const std::int64_t total = call.count * token;
    const std::int64_t first = std::int64_t{blockIdx.x} * take_ahead * piece_threads + threadIdx.x;
    T words[take_ahead] = {};
    QUADRAT_UNROLL
    for (int k = 0; k < take_ahead; ++k) {
        const std::int64_t at = first + std::int64_t{k} * piece_threads;
        if (at < total) {
            const std::int64_t number = quotient(at, token), index = call.indices[number];
            if (index >= 0 && index < call.size) {
                const std::int64_t from = index * token + (at - number * token);
                words[k] = load_constant<T>(address_of(call.values) + static_cast<Address>(from) * sizeof(T));
            }
        }
    }
    QUADRAT_UNROLL
    for (int k = 0; k < take_ahead; ++k) {
        const std::int64_t at = first + std::int64_t{k} * piece_threads;
        if (at < total) {
            store(address_of(call.out) + static_cast<Address>(at) * sizeof(T), words[k]);
        }
    }
}

}  // namespace quadrat::cuda
