#include "tiers/block_changes/change_question.hpp"

namespace cenote {

void answer_changes(block_changes& changes, const block_listing& tier, const change_question& question) {
  for (const change_reader each : question.closed) changes.close(each);
  changes.set_alarm(question.ring);
  change_answer answer;
  for (const change_reader each : question.readers) {
    if (auto run = changes.read(each, question.steps, tier)) answer.runs.emplace_back(each, std::move(*run));
  }
  question.answer(std::move(answer));
}

}  // namespace cenote
