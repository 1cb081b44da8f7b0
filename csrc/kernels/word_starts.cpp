#include "word_starts.hpp"

namespace quadrat {

void word_starts(const std::int64_t* offsets, const std::uint8_t* special, std::int64_t length, std::uint8_t* words) {
    for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t end_before = i == 0 ? -1 : offsets[2 * i - 1];
        const bool begins = offsets[2 * i] != end_before || (i > 0 && special[i - 1] == 1);
        words[i] = special[i] != 0 ? word_none : begins ? word_begins : word_inside;
    }
}

void word_starts_of_ids(const std::int64_t* word_ids, const std::uint8_t* special, std::int64_t length,
                        std::uint8_t* words) {
    for (std::int64_t i = 0; i < length; ++i) {
        const bool begins = i == 0 || word_ids[i] != word_ids[i - 1] || special[i - 1] != 0;
        words[i] = special[i] != 0 || word_ids[i] < 0 ? word_none : begins ? word_begins : word_inside;
    }
}

}  // namespace quadrat
