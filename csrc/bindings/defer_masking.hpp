// Masking that a deferred batch leaves to where it goes.
#pragma once

#include <cstdint>
#include <vector>

#include "defer_buffer.hpp"
#include "philox_labels.hpp"
#include "plan.hpp"

namespace quadrat {

// Draws by counter need no order, so that only what they are made of travels: see `masking` in defer.hpp.
class DeferredMasking {
public:
    // Nothing is left to do elsewhere (false) where draws come from a generator, for whole words, and for flat ids.
    DeferredMasking(const Columns& columns, const std::vector<Step>& steps, const Step* ids, const Labels* labels);
    explicit operator bool() const { return labels_ != nullptr; }

    void reserve(Buffer* buffer);
    // ids: where they are, which is written already.
    Status write(const Buffer& buffer, const Place& ids) const;
    py::object as_object() const;

private:
    const Columns& columns_;
    std::size_t index_ = 0;  // of the ids
    const PhiloxLabels* labels_ = nullptr;
    std::int64_t keys_ = nowhere, words_ = nowhere, set_ = nowhere;
};

}  // namespace quadrat
