// Images and sounds in a prompt: the blocks that depend on each, by the rule of vLLM and llm-d (pkg/kvcache/kvblock/
// extra_keys.go): a block's list has the hash of each item whose placeholder tokens overlap it, by their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "services/indexer/keys/extra_keys.hpp"

namespace cenote::indexer {

/// An item and its placeholder: tokens [first_token, first_token + tokens).
struct multimodal_item {
  std::string_view hash;
  std::uint64_t first_token = 0;
  std::uint64_t tokens = 0;  ///< 0: it covers no block
};

/// Replaces `table` by one list for each whole block of `token_count` tokens. Sorts `items` by their first token, equal
/// ones stay in order. Without items, or with block_tokens = 0, the table is empty: no block has any. Thread-safe.
void write_item_keys(std::span<multimodal_item> items, std::uint32_t block_tokens, std::size_t token_count,
                     extra_key_table& table);

}  // namespace cenote::indexer
