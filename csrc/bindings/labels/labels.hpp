// Labels that come from the ids of a batch: the step `labels` of a plan.
#pragma once

#include <pybind11/numpy.h>

#include <optional>

#include "../input/columns.hpp"
#include "../masking_options.hpp"
#include "generator.hpp"

namespace quadrat {

// The ids of a batch, and where the labels go. Padded, `[rows, width]`: padding lies on one side of each row; or flat,
// `[1, width]`: the rows one after the other, padding after the last.
struct BatchIds {
    std::size_t column;  // that they come from
    std::int64_t rows, width;
    Side side;
    bool flat;
    const std::int64_t* lengths;  // of the rows
    std::int64_t* ids;
    std::int64_t* labels;

    std::int64_t count() const { return flat ? width : rows * width; }
    // Where the rows begin, and one number more.
    std::vector<std::int64_t> starts() const;
};

// Special tokens as kernels/mask_tokens.hpp takes them. Throws ValueError for an id that is not in 0 ... 2^28 - 1.
std::vector<std::uint64_t> bit_set(const std::vector<std::int64_t>& ids);

class Labels {
public:
    Labels() = default;
    virtual ~Labels() = default;
    Labels(const Labels&) = delete;
    Labels& operator=(const Labels&) = delete;

    // The columns are those that the ids come from.
    virtual Status write(const Columns& columns, const BatchIds& batch) const = 0;
};

// Causal language modelling: the ids, ignored where they are the padding id.
class CausalLabels final : public Labels {
public:
    // special: the column of special-token masks, or -1.
    explicit CausalLabels(std::int64_t pad, std::int64_t special = -1) : pad_id(pad), special_(special) {}
    Status write(const Columns& columns, const BatchIds& batch) const override;
    // The special-token masks count for nothing here, but what are not numbers is an error of the reference.
    Status check_special(const Columns& columns) const;

    const std::int64_t pad_id;

private:
    std::int64_t special_;
};

// Causal language modelling by lengths: the ids, ignored in padding and where the attention masks of the rows are 0.
class KeptLabels final : public Labels {
public:
    // mask: the column of attention masks.
    explicit KeptLabels(std::int64_t mask) : mask_(mask) {}
    Status write(const Columns& columns, const BatchIds& batch) const override;

private:
    std::int64_t mask_;
};

// How a column tells whole words.
enum class WordFormat : std::uint8_t { none, offsets, word_ids };

// Masked language modelling: some tokens are masked, in place, and are labels then. This much is the same however the
// numbers are drawn: which tokens are special, and what is a word.
class MaskingLabels : public Labels {
public:
    // special: the column of special-token masks, or -1: then tokens of `special_ids`, 0 ... 2^28 - 1, are special.
    // words: the column of offsets or word ids, or -1. word_format: see WordFormat.
    MaskingLabels(const std::vector<std::int64_t>& special_ids, std::int64_t special, std::int64_t words,
                  int word_format);

    Status write(const Columns& columns, const BatchIds& batch) const final;
    // On arrays. special: a byte a token, or null; offsets: two numbers a token, or null; keys: of the rows, or null.
    // Rows without `lengths` fill the width. Tokens in no row are not written.
    Status write(const std::uint8_t* special, const std::int64_t* offsets, const std::uint64_t* keys,
                 BatchIds batch) const;

    bool has_words() const { return word_format_ != WordFormat::none; }
    std::int64_t special_column() const { return special_; }
    const std::vector<std::uint64_t>& special_set() const { return special_set_; }
    // What the tokens of all rows are by the column of special-token masks: `count` words, see Word.
    Status words_of_rows(const Columns& columns, std::int64_t count, std::uint8_t* words) const;

protected:
    // words: what each token is, see Word. keys: of rows; null where they come from the columns or the tokens.
    virtual Status mask(const Columns& columns, const std::uint8_t* words, const std::uint64_t* keys,
                        const BatchIds& batch) const = 0;

private:
    // A byte a token: 0, or not 0 for special tokens and padding.
    Status mark_special(const Columns& columns, const BatchIds& batch, std::uint8_t* special) const;

    std::vector<std::uint64_t> special_set_;
    std::int64_t special_, words_;
    WordFormat word_format_;
};

// Masked language modelling by counter-based draws: philox_mask on a batch.
class PhiloxLabels final : public MaskingLabels {
public:
    // keys: the column of row keys, one int64 a row, or -1: then a row's key comes from its tokens. epoch: one number,
    // in place of that of the options, looked at for each batch: it may lie in memory that other processes write to.
    // The others: as of MaskingLabels. Throws ValueError for options that nothing can be drawn with.
    PhiloxLabels(const PhiloxOptions& options, const std::vector<std::int64_t>& special_ids, std::int64_t special,
                 std::int64_t words, int word_format, std::int64_t keys,
                 std::optional<py::array_t<std::uint32_t>> epoch);

    void traverse(Visitor& visit) const { visit(epoch_ ? py::handle(*epoch_) : py::handle()); }

    // The keys of the rows; lengths[i] ids at ids[start[i]].
    Status write_keys(const Columns& columns, Span<const std::int64_t> ids, Span<const std::int64_t> start,
                      const std::int64_t* lengths, std::uint64_t* out) const;
    // With the epoch of now.
    PhiloxOptions options() const;

private:
    Status mask(const Columns& columns, const std::uint8_t* words, const std::uint64_t* keys,
                const BatchIds& batch) const override;

    PhiloxOptions options_;
    std::int64_t keys_;
    std::optional<py::array_t<std::uint32_t>> epoch_;
};

}  // namespace quadrat
