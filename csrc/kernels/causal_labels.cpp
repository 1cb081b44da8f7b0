#include "causal_labels.hpp"

#include "mask_tokens.hpp"
#include "simd.hpp"

namespace quadrat {

QUADRAT_CLONES void causal_labels(const std::int64_t* ids, std::int64_t count, std::int64_t pad_id,
                                  std::int64_t* labels) {
    for (std::int64_t i = 0; i < count; ++i) {
        labels[i] = ids[i] == pad_id ? ignore_index : ids[i];
    }
}

}  // namespace quadrat
