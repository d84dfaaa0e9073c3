// A question for scores, and its answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "services/indexer/forest/holder_table.hpp"
#include "services/indexer/keys/extra_keys.hpp"

namespace cenote::indexer {

/// A prompt, by its tokens or by keys of its blocks. Views of the caller's memory.
struct score_question {
  std::string_view model{};  ///< or an adapter's name
  std::span<const std::uint32_t> tokens{};
  std::span<const std::uint64_t> block_keys{};  ///< where there are no tokens: of the model's smallest blocks
  std::span<const std::string_view> pods{};     ///< only these; empty: all
  std::string_view lora_name{};                 ///< empty: the base model
  extra_key_view extra_keys{};                  ///< one list a block, with the salt in the first block's

  /// Whether check_lists() has something to check.
  [[nodiscard]] bool has_lists() const noexcept { return !extra_keys.blocks.empty() && !tokens.empty(); }
};

/// Bounds of a question that a stranger asks.
struct question_limits {
  static constexpr std::size_t tokens = std::size_t{1} << 20U;
  static constexpr std::size_t keys = std::size_t{1} << 20U;
  static constexpr std::size_t pods = 65'536;
  static constexpr std::size_t holders = std::size_t{1} << 18U;  ///< of all blocks that are looked up
};

/// Whether there are as many lists of extra keys as blocks at most; 0 tokens a block: the model is unknown. Errors:
/// invalid_argument.
[[nodiscard]] result<void> check_lists(const score_question& question, std::uint32_t block_tokens);
/// Whether an answer may name so many holders. Errors: limit_exceeded.
[[nodiscard]] result<void> check_holders(std::size_t count);

/// The longest prefix of a pod's best rank.
struct pod_score {
  std::string_view pod{};
  double score = 0;  ///< sum of the weights of its blocks, in blocks of the smallest size
  std::uint32_t blocks = 0;
  std::uint32_t tokens = 0;
  std::uint16_t dp_rank = 0;
  std::array<std::uint32_t, most_media> by_medium{};  ///< blocks, by their best medium
};

/// A rank of a pod that has a block in a medium.
struct named_holder {
  std::string_view pod{};
  std::uint16_t dp_rank = 0;
  medium_number medium = 0;
};
/// Called with the holders of one key after another.
using holder_visitor = std::function<void(std::span<const named_holder>)>;

/// Valid until the next question.
struct score_answer {
  std::span<const pod_score> scores{};           ///< best first, then by name
  std::uint32_t blocks = 0;                      ///< whole blocks of the question
  std::uint32_t block_tokens = 0;                ///< tokens of the smallest blocks; 0: the model is unknown
  std::span<const std::string_view> degraded{};  ///< pods that have lost events for good
};

}  // namespace cenote::indexer
