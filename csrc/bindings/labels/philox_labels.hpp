// Labels of masked language modelling by counter-based draws: philox_mask on a batch.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "../masking_options.hpp"
#include "labels.hpp"

namespace quadrat {

class PhiloxLabels final : public MaskingLabels {
public:
    // keys: the column of row keys, one int64 a row, or -1: then a row's key comes from its tokens. epoch: one number,
    // in place of that of the options, looked at for each batch: it may lie in memory that other processes write to.
    // The others: as of MaskingLabels. Throws ValueError for options that nothing can be drawn with.
    PhiloxLabels(const PhiloxOptions& options, const std::vector<std::int64_t>& special_ids, std::int64_t special,
                 std::int64_t words, int word_format, std::int64_t keys,
                 std::optional<py::array_t<std::uint32_t>> epoch);

    template <typename Visit>
    void traverse(Visit& visit) const {
        visit(epoch_ ? py::handle(*epoch_) : py::handle());
    }

    using MaskingLabels::write;
    // On arrays; special, offsets: see `classify`. lengths, keys: of the rows, or null: then each row fills the width,
    // and its key comes from its tokens.
    Status write(const std::uint8_t* special, const std::int64_t* offsets, const std::uint64_t* keys,
                 const std::int64_t* lengths, const BatchIds& batch) const;
    // The keys of the rows; lengths[i] ids at ids[start[i]].
    Status write_keys(const Columns& columns, Span<const std::int64_t> ids, Span<const std::int64_t> start,
                      const std::int64_t* lengths, std::uint64_t* out) const;
    // With the epoch of now.
    PhiloxOptions options() const;

private:
    Status mask(const Columns& columns, const std::uint8_t* words, const BatchIds& batch) const override;
    // words: see Word.
    Status mask(const std::uint8_t* words, const std::uint64_t* keys, Span<const std::int64_t> start,
                const std::int64_t* lengths, const BatchIds& batch) const;

    std::uint32_t epoch() const;

    PhiloxMasking masking_;
    PhiloxOptions options_;
    std::int64_t keys_;
    std::optional<py::array_t<std::uint32_t>> epoch_;
};

}  // namespace quadrat
