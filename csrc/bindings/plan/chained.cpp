// Outputs of prompts and completions, as preferences have them: each completion of an example comes after its prompt.
#include <algorithm>

#include "../../kernels/padded_rows.hpp"
#include "execute.hpp"

namespace quadrat {

// The lengths of all chains, completion by completion; known after the first call, as all steps have the same.
const std::vector<std::int64_t>& Execution::chains(std::size_t index) const {
    const std::size_t first = index + (layout_.prompts ? 1 : 0);
    if (!chains_.empty() && chained_ == index) {
        return chains_;
    }
    chained_ = index;
    chains_.clear();
    const std::vector<std::int64_t>& prompts = columns_.at(index).lengths;
    chains_.reserve(prompts.size() * static_cast<std::size_t>(layout_.completions));
    for (std::size_t part = first; part < first + static_cast<std::size_t>(layout_.completions); ++part) {
        const std::vector<std::int64_t>& own = columns_.at(part).lengths;
        for (std::size_t i = 0; i < own.size(); ++i) {
            chains_.push_back(own[i] + (layout_.prompts ? prompts.at(i) : 0));
        }
    }
    return chains_;
}

std::int64_t Execution::longest_chain(std::size_t index) const {
    const std::vector<std::int64_t>& lengths = chains(index);
    return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

Status Execution::write_chains(const Step& step, std::int64_t extent, std::int64_t* out) const {
    const std::vector<std::int64_t>& lengths = chains(step.index);
    const auto count = static_cast<std::int64_t>(lengths.size());
    if (layout_.total != 0 && longest_chain(step.index) > layout_.total) {
        return {Code::row_too_long};
    }
    if (step.action == Action::chain) {
        const std::size_t first = step.index + (layout_.prompts ? 1 : 0);
        Status status;
        for (std::size_t part = first; part < first + static_cast<std::size_t>(layout_.completions) && status; ++part) {
            status = layout_.prompts ? columns_.pad_joined(step.index, part, out, step.kind, extent, value(step))
                                     : columns_.pad(part, out, step.kind, extent, Side::right, value(step));
            out += columns_.count(part) * extent;
        }
        return status;
    }
    const Status status = attention_mask({lengths.data(), count}, extent, Side::right, step.kind, out);
    if (step.action == Action::chain_marks && layout_.prompts) {
        const std::vector<std::int64_t>& prompts = columns_.at(step.index).lengths;
        for (std::int64_t i = 0; i < count; ++i) {
            std::fill_n(out + i * extent, prompts[static_cast<std::size_t>(i) % prompts.size()], 0);
        }
    }
    return status;
}

}  // namespace quadrat
