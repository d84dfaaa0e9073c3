#include "services/indexer/placement/batch_rewrite.hpp"

namespace cenote::indexer {

// The finisher of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
std::uint64_t cut_name(std::uint64_t hash, std::uint32_t distance) noexcept {
  if (distance == 0) return hash;
  std::uint64_t mixed = hash + distance * 0x9e37'79b9'7f4a'7c15;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58'476d'1ce4'e5b9;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d0'49bb'1331'11eb;
  return mixed ^ (mixed >> 31U);
}

// A name that no engine's block has, so that a part is never taken for the whole.
std::uint64_t joined_name(const resize_rules& rules, std::uint64_t last_hash) noexcept {
  constexpr std::uint32_t beyond_any_cut = 0xffff'ffff;
  return rules.naming == block_naming::common ? last_hash : cut_name(last_hash, beyond_any_cut);
}

void batch_rewrite::hand_on() {
  if (!batch.events.empty()) sink(batch);
  const std::uint32_t rank = batch.dp_rank;
  batch.clear();
  batch.dp_rank = rank;
}

void batch_rewrite::hand_on_many() {
  constexpr std::size_t most_tokens = std::size_t{1} << 20;
  if (batch.hashes.size() >= most_hashes || batch.tokens.size() >= most_tokens) hand_on();
}

engine_event batch_rewrite::begin_event(const event_batch& source, const engine_event& event) {
  engine_event begun = event;
  begun.hashes = {};
  begun.tokens = {};
  begun.extra_keys = {};
  begun.lora_name = append_text(source.lora_name_of(event));
  begun.medium_text = {};
  if (event.medium == block_medium::other) begun.medium_text = append_text(source.medium_of(event));
  return begun;
}

void batch_rewrite::append_list(std::span<const std::byte> list) {
  extra_key_table& table = batch.extra_keys;
  const std::size_t first = table.bytes.size();
  table.bytes.insert(table.bytes.end(), list.begin(), list.end());
  table.blocks.push_back(range_from(first, table.bytes));
}

array_range batch_rewrite::append_text(std::string_view text) {
  const std::size_t first = batch.text.size();
  batch.text.insert(batch.text.end(), text.begin(), text.end());
  return range_from(first, batch.text);
}

}  // namespace cenote::indexer
