// Reads of a tier's changes from another thread: a question, and an answer on the tier's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "tiers/block_changes/block_changes.hpp"

namespace cenote {

/// All runs are of one moment: none of them lacks a change that another one has.
struct change_answer {
  std::vector<std::pair<change_reader, change_run>> runs;  ///< a reader without a run could not be opened
};

struct change_question {
  std::vector<change_reader> readers;         ///< new ones begin with this
  std::vector<change_reader> closed;          ///< … end with this, before the others are read
  std::size_t steps = 4096;                   ///< steps of each walk
  std::function<void()> ring;                 ///< see block_changes::set_alarm()
  std::function<void(change_answer)> answer;  ///< must not block
};

/// Answers the question; to be called on the tier's thread.
void answer_changes(block_changes& changes, const block_listing& tier, const change_question& question);

}  // namespace cenote
