// Labels of whole-word masking as transformers 4.x does it: choose_words, then replace_tokens.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>

#include "../input/generator.hpp"
#include "labels.hpp"

namespace quadrat {

class WordLabels final : public Labels {
public:
    // shuffle: the random.Random that orders the words, or None for the generator that all else is drawn from. pieces:
    // by id, see Piece. joined: whether column 1 holds positions that join the word before them. before: called without
    // arguments once the ids are there and nothing is drawn yet, or None.
    WordLabels(py::object shuffle, Source source, py::object generator, double probability,
               const Replacement& replacement, py::array_t<std::uint8_t> pieces, bool joined, py::object before);

    // Rows must be padded, not flat.
    Status write(const Columns& columns, const BatchIds& batch) const override;

private:
    py::object shuffle_;
    Source source_;
    py::object generator_;
    double probability_;
    Replacement replacement_;
    py::array_t<std::uint8_t> pieces_;
    bool joined_;
    py::object before_;
};

}  // namespace quadrat
