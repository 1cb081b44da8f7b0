// causal_labels: the ids, ignored where they are the padding id.
#pragma once

#include "../kernels/mask_tokens.hpp"
#include "kernel.cuh"

namespace quadrat::cuda {

__global__ void causal_labels(CausalLabels call) {
    const Share tokens = share_of_one_row();
    for (std::int64_t i = tokens.first; i < call.count; i += tokens.step) {
        const std::int64_t id = call.ids[i];
        call.labels[i] = id == call.pad_id ? std::int64_t{ignore_index} : id;
    }
}

}  // namespace quadrat::cuda
