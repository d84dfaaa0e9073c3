// A question for scores and its answer, as plain views: what transports fill and the index answers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "services/indexer/forest/holder_table.hpp"
#include "services/indexer/keys/extra_keys.hpp"

namespace cenote::indexer {

/// The prompt by its tokens, or else by the keys of its blocks. Valid as long as the arrays that it points into.
struct score_question {
  std::string_view model{};
  std::span<const std::uint32_t> tokens{};
  std::span<const std::uint64_t> block_keys{};  ///< in place of tokens
  std::span<const std::string_view> pods{};     ///< only these; empty: all
  std::string_view lora_name{};                 ///< empty: the base model
  extra_key_view
      extra_keys;  ///< a list for each block, the first one's with the salt; blocks behind the last have none
};

/// The prefix that a pod has, at its best rank.
struct pod_score {
  std::string_view pod{};
  double score = 0;  ///< the sum over the prefix of each block's best weight
  std::uint32_t blocks = 0;
  std::uint32_t tokens = 0;
  std::uint16_t dp_rank = 0;
  std::array<std::uint32_t, most_media> by_medium{};  ///< blocks whose best medium this is
};

struct score_answer {
  std::span<const pod_score> scores{};           ///< best first, then by name
  std::uint32_t blocks = 0;                      ///< whole blocks of the prompt
  std::uint32_t block_tokens = 0;                ///< tokens a block; 0: the model is not known
  std::span<const std::string_view> degraded{};  ///< pods whose events were lost for good
};

}  // namespace cenote::indexer
