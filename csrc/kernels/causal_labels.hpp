// causal_labels: the labels of a causal language model are its ids, but for one id that is ignored.
#pragma once

#include <cstdint>

namespace quadrat {

// labels[i] = ids[i], or -100 where that is `pad_id`. `count` of each.
void causal_labels(const std::int64_t* ids, std::int64_t count, std::int64_t pad_id, std::int64_t* labels);

}  // namespace quadrat
