#include "tiers/blocks/state.hpp"

#include <algorithm>

namespace cenote::blocks {

using memory::block_record;
using memory::block_ref;
using memory::block_state;
using memory::completion;
using memory::completion_kind;
using memory::index_value;
using memory::submission;

slab* slab_of(const instance& instance, block_ref ref) noexcept {
  const auto found = instance.slabs.find(ref.slab());
  if (found == instance.slabs.end() || ref.block() >= found->second->what.count) return nullptr;
  return found->second.get();
}

slab* state::slab_of_record(std::uint32_t record) const noexcept {
  const auto after = by_record.upper_bound(record);
  if (after == by_record.begin()) return nullptr;
  slab* found = std::prev(after)->second;
  return record - found->what.first_record < found->what.count ? found : nullptr;
}

const block_record* state::present_under(const instance& instance, const block_key& key,
                                         block_ref& ref) const noexcept {
  const std::uint64_t value = instance.index.find(key);
  if (!index_value::holds_block(value)) return nullptr;
  ref = index_value::ref(value);
  const slab* home = slab_of(instance, ref);
  if (home == nullptr) return nullptr;
  const block_record& record = record_of(*home, ref);
  return record.state() == block_state::present ? &record : nullptr;
}

std::optional<block_ref> state::find_present(const instance& instance, const block_key& key) const noexcept {
  block_ref ref;
  return present_under(instance, key, ref) == nullptr ? std::nullopt : std::optional(ref);
}

std::optional<block_ref> state::find_present(const instance& instance, const block_key& key, const full_key& full,
                                             bool* collision) const noexcept {
  block_ref ref;
  const block_record* const record = present_under(instance, key, ref);
  if (record == nullptr) return std::nullopt;
  if (record->get_key() == full) return ref;
  if (collision != nullptr) *collision = true;
  return std::nullopt;
}

bool state::is_same(const pool& group, const chain_block& block) const noexcept {
  const block_record& record = records[block.record];
  if (record.state() != block_state::present || record.version() != block.version) return false;
  const slab* home = slab_of_record(block.record);
  return home != nullptr && &pool_of(*home) == &group;
}

std::uint64_t state::key_hash(const pool& group, std::uint32_t record) const noexcept {
  return reduce_key(records[record].get_key().view(), group.group).lo;
}

std::uint64_t state::usable_bytes() const noexcept {
  if (!options.grants_in_capacity) return options.capacity;
  // What is left over after the last whole slab can never be used.
  std::uint64_t smallest = ~std::uint64_t{0};
  for (const auto& [number, each] : instances) {
    for (const auto& group : each->pools) {
      smallest = std::min(smallest, group->stride * group->blocks_per_slab + memory::page_bytes);
    }
  }
  const std::uint64_t rest = options.capacity - std::min(assigned, options.capacity);
  return assigned + (smallest == ~std::uint64_t{0} ? 0 : rest / smallest * smallest);
}

std::optional<std::uint32_t> oldest_of(const pool& group) noexcept {
  if (const auto written_back = group.written_back->victim()) return written_back;
  return oldest_unwritten_of(group);
}

std::optional<std::uint32_t> oldest_unwritten_of(const pool& group) noexcept {
  if (const auto bounded = group.bounded.victim()) return bounded;
  return group.policy->victim();
}

std::uint64_t share_of(std::uint64_t bytes, double share) noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * share);
}

std::uint32_t blocks_for(std::uint64_t bytes, const pool& pool) noexcept {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>((bytes + pool.stride - 1) / pool.stride, eviction_batch));
}

void refuse(batch& work, const submission& entry, error_code code) noexcept {
  if (work.refusal != error_code::ok) return;
  work.refusal = code;
  work.refusal_index = entry.index;
}

void finish_request(batch& work, const submission& entry) {
  completion answer;
  answer.request = entry.request;
  answer.kind = completion_kind::done;
  answer.code = static_cast<std::uint16_t>(work.refusal);
  answer.index = work.refusal_index;
  answer.value = work.effects;
  work.completions.push_back(answer);
  work.effects = 0;
  work.refusal = error_code::ok;
  work.refusal_index = 0;
}

std::uint64_t answer_removals(batch& finished, error_code outcome) {
  std::vector<std::uint32_t> removing;
  for (const memory::submission& each : finished.entries) {
    const bool removes = each.op == memory::operation::remove || each.op == memory::operation::clear;
    if (removes && (removing.empty() || removing.back() != each.request)) removing.push_back(each.request);
  }
  if (removing.empty()) return 0;
  std::ranges::sort(removing);
  std::uint64_t count = 0;
  for (memory::completion& each : finished.completions) {
    if (each.kind != memory::completion_kind::done || each.code != 0) continue;
    if (!std::ranges::binary_search(removing, each.request)) continue;
    each.code = static_cast<std::uint16_t>(outcome);
    ++count;
  }
  return count;
}

}  // namespace cenote::blocks
