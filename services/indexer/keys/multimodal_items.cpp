#include "services/indexer/keys/multimodal_items.hpp"

#include <algorithm>

namespace cenote::indexer {

void write_item_keys(std::span<multimodal_item> items, std::uint32_t block_tokens, std::size_t token_count,
                     extra_key_table& table) {
  table.clear();
  if (items.empty() || block_tokens == 0) return;
  // By insertion, since std::stable_sort allocates; prompts have few items.
  for (std::size_t i = 1; i < items.size(); ++i) {
    for (std::size_t at = i; at > 0 && items[at].first_token < items[at - 1].first_token; --at) {
      std::swap(items[at], items[at - 1]);
    }
  }
  const auto overlaps = [&](const multimodal_item& item, std::uint64_t block) {
    const std::uint64_t start = block * block_tokens;
    return item.tokens > 0 && item.first_token < start + block_tokens && item.first_token + item.tokens > start;
  };
  extra_key_writer writer(table.bytes);
  for (std::uint64_t block = 0; block < token_count / block_tokens; ++block) {
    const auto start = static_cast<std::uint32_t>(table.bytes.size());
    const auto count = std::ranges::count_if(items, [&](const auto& item) { return overlaps(item, block); });
    if (count > 0) writer.list(static_cast<std::uint64_t>(count));
    for (const multimodal_item& item : items) {
      if (overlaps(item, block)) writer.text(item.hash);
    }
    table.blocks.push_back({start, static_cast<std::uint32_t>(table.bytes.size()) - start});
  }
}

}  // namespace cenote::indexer
