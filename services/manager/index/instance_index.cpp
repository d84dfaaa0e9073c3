#include "services/manager/index/instance_index.hpp"

namespace cenote::manager {

std::uint32_t instance_index::add(const cache_key& key, std::uint32_t parent) {
  const std::uint64_t hash = hash_(key);
  table_.make_room(
      hash, records_.make_room(), [this](std::uint32_t record) { return hash_of(record); },
      [this](std::uint32_t record) { __builtin_prefetch(&records_.entry(record)); });
  const std::uint32_t record = records_.take(key, parent);
  table_.insert(hash, record);
  count_.store(count() + 1, std::memory_order_relaxed);
  return record;
}

void instance_index::drop(std::uint32_t record) noexcept {
  const std::uint64_t hash = hash_of(record);
  table_.erase(hash, record, [this](std::uint32_t other) { return hash_of(other); });
  records_.release(record);
  count_.store(count() - 1, std::memory_order_relaxed);
}

void instance_index::note_use(std::uint32_t record, std::uint32_t now) noexcept {
  if (has_record(record)) records_.entry(record).add_use(now);
}

bool instance_index::add_location(std::uint32_t record, const location& place) {
  if (place.state == location_state::none || find_word(record, place.extent) != nullptr) return false;
  records_.add_location(record, place);
  return true;
}

change_outcome instance_index::change_state(std::uint32_t record, std::uint32_t extent, location_state expected,
                                            location_state next) noexcept {
  std::atomic<std::uint64_t>* const word = find_word(record, extent);
  if (word == nullptr) return change_outcome::not_found;
  location place = unpack(word->load(std::memory_order_relaxed));
  if (place.state != expected) return change_outcome::mismatch;
  place.state = next;
  records_.change(records_.entry(record), *word, pack(place));
  return change_outcome::changed;
}

change_outcome instance_index::serve(std::uint32_t record, std::uint32_t extent, std::uint32_t now) noexcept {
  const auto outcome = change_state(record, extent, location_state::writing, location_state::serving);
  if (outcome == change_outcome::changed) records_.entry(record).add_use(now);
  return outcome;
}

erase_outcome instance_index::erase_location(std::uint32_t record, std::uint32_t extent,
                                             location_state expected) noexcept {
  std::atomic<std::uint64_t>* const word = find_word(record, extent);
  if (word == nullptr) return {};
  if (state_of(word->load(std::memory_order_relaxed)) != expected) return {.outcome = change_outcome::mismatch};
  index_record& target = records_.entry(record);
  records_.change(target, *word, 0);
  records_.drop_empty_node(target);
  bool is_empty = true;
  visit_locations(record, [&](const location& /*place*/) { is_empty = false; });
  if (is_empty) drop(record);
  return {.outcome = change_outcome::changed, .is_key_gone = is_empty};
}

std::size_t instance_index::bytes() const noexcept {
  return sizeof(*this) + arena_.bytes() + table_.bytes() + records_.bytes() + extents_.bytes() + sets_.bytes();
}

void instance_index::prefetch(std::span<const cache_key> keys) const noexcept {
  for (const cache_key& key : keys) {
    const std::uint64_t hash = hash_(key);
    table_.prefetch(hash);
  }
  for (const cache_key& key : keys) {
    const std::uint64_t hash = hash_(key);
    const std::uint32_t record = table_.candidate(hash);
    if (records_.has_entry(record)) __builtin_prefetch(&records_.entry(record));
  }
}

}  // namespace cenote::manager
