#include "services/indexer/scoring/score_question.hpp"

#include <algorithm>
#include <string>

namespace cenote::indexer {

result<void> check_lists(const score_question& question, std::uint32_t block_tokens) {
  if (!question.has_lists() || block_tokens == 0) return {};
  const std::size_t lists = question.extra_keys.blocks.size();
  const std::size_t blocks = question.tokens.size() / block_tokens;
  if (lists <= std::max<std::size_t>(blocks, 1)) return {};
  return fail(error_code::invalid_argument, std::to_string(lists) + " lists of extra keys, where the prompt has " +
                                                std::to_string(blocks) + " blocks of " + std::to_string(block_tokens) +
                                                " tokens");
}

result<void> check_holders(std::size_t count) {
  if (count <= question_limits::holders) return {};
  return fail(error_code::limit_exceeded, "these blocks have " + std::to_string(count) +
                                              " holders; an answer has at most " +
                                              std::to_string(question_limits::holders) + ": ask for fewer keys");
}

}  // namespace cenote::indexer
