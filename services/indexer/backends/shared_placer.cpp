#include "services/indexer/backends/shared_placer.hpp"

#include <algorithm>
#include <iterator>

#include "services/indexer/backends/pod_entry.hpp"

namespace cenote::indexer {

namespace {

std::string field_of(const publisher_identity& publisher, const event_batch& batch, const engine_event& event) {
  pod_entry entry{.pod = publisher.pod, .tier = std::string(batch.medium_of(event))};
  if (event.group) entry.group = *event.group;
  return field_text(entry);
}

}  // namespace

void shared_placer::open(publisher_id publisher, const publisher_identity& identity) {
  publishers_.erase(publisher);
  publishers_.try_emplace(publisher, identity,
                          block_resizer(resize_rules_, identity.kind, identity.clear, parts_memory_));
}

const publisher_identity* shared_placer::find(publisher_id publisher) const noexcept {
  const auto found = publishers_.find(publisher);
  return found == publishers_.end() ? nullptr : &found->second.identity;
}

bool shared_placer::apply(publisher_id publisher, const event_batch& batch) {
  bool is_parent_unknown = false;
  const auto found = publishers_.find(publisher);
  if (found == publishers_.end()) return false;
  shared_publisher& target = found->second;
  ++counters_.batches;
  for (std::size_t i = 0; i < batch.faults.size(); ++i) counters_.faults[i] += batch.faults[i];
  const bool is_orphan = target.resizer.resize(batch, resized_, counters_, [&](const event_batch& resized) {
    for (const engine_event& event : resized.events) change(publisher, target, resized, event, is_parent_unknown);
  });
  return is_parent_unknown || is_orphan;
}

void shared_placer::change(publisher_id number, const shared_publisher& publisher, const event_batch& batch,
                           const engine_event& event, bool& is_parent_unknown) {
  const publisher_identity& identity = publisher.identity;
  if (identity.kind == publisher_kind::node) {
    counters_.refuse(placement_refusal::unknown_name, event.hashes.size);
  } else if (event.kind == event_kind::stored) {
    store(number, publisher, batch, event, is_parent_unknown);
  } else if (event.kind == event_kind::removed) {
    store_.remove(identity.pod, field_of(identity, batch, event), batch.hashes_of(event));
    counters_.removed += event.hashes.size;
  } else {
    ++counters_.clears;
    store_.clear(identity.pod, identity.clear == clear_scope::all ? std::string_view() : name_of(block_medium::gpu));
  }
}

void shared_placer::clear(std::string_view pod, std::string_view tier) noexcept {
  for (auto& [number, publisher] : publishers_) {
    if (publisher.identity.pod == pod) publisher.resizer.clear_medium(tier);
  }
}

void shared_placer::store(publisher_id number, const shared_publisher& publisher, const event_batch& batch,
                          const engine_event& event, bool& is_parent_unknown) {
  const std::uint32_t blocks = event.hashes.size;
  if (use_of(event.attention) != group_use::prefix) {
    return counters_.refuse(placement_refusal::ignored_group, blocks);
  }
  if (batch.medium_of(event).empty()) return counters_.refuse(placement_refusal::bounds, blocks);
  if (event.tokens.empty()) return hold_known(number, publisher, batch, event);
  if (event.is_sparse()) return counters_.refuse(placement_refusal::ignored_group, blocks);
  place(number, publisher.identity, batch, event, is_parent_unknown);
}

void shared_placer::place(publisher_id number, const publisher_identity& publisher, const event_batch& batch,
                          const engine_event& event, bool& is_parent_unknown) {
  const std::uint32_t blocks = event.hashes.size;
  token_run run{.tokens = batch.tokens_of(event), .extra_keys = batch.extra_keys_of(event), .parent = std::nullopt};
  if (event.parent) {
    run.parent = key_of(number, *event.parent);
    if (!run.parent) {
      is_parent_unknown = true;
      return counters_.refuse(placement_refusal::unknown_parent, blocks);
    }
  }
  const key_space space{
      .model = publisher.model, .lora_name = batch.lora_name_of(event), .block_tokens = event.block_tokens};
  keys_.resize(blocks);
  processor_.write_keys(run, space, keys_);
  const auto hashes = batch.hashes_of(event);
  store_.add_size(space.name(), event.block_tokens);
  store_.add(publisher.pod, field_of(publisher, batch, event), keys_, hashes);
  for (std::size_t i = 0; i < blocks; ++i) names_.add(number, hashes[i], keys_[i]);
  counters_.stored += blocks;
}

// Blocks whose tokens an earlier event had: they lie in one more tier.
void shared_placer::hold_known(publisher_id number, const shared_publisher& publisher, const event_batch& batch,
                               const engine_event& event) {
  keys_.clear();
  const bool is_cut = publisher.resizer.most_cuts() > 1;
  std::size_t unknown = 0;
  for (const std::uint64_t hash : batch.hashes_of(event)) {
    const std::size_t earlier = keys_.size();
    if (is_cut) {
      std::ranges::copy(store_.find_all(hash), std::back_inserter(keys_));
    } else if (const auto key = key_of(number, hash)) {
      keys_.push_back(*key);
    }
    if (keys_.size() == earlier) ++unknown;
  }
  store_.add(publisher.identity.pod, field_of(publisher.identity, batch, event), keys_, {});
  counters_.stored += keys_.size();
  counters_.refuse(placement_refusal::unknown_name, unknown);
}

std::optional<std::uint64_t> shared_placer::key_of(publisher_id number, std::uint64_t hash) {
  if (const auto known = names_.find(number, hash)) return known;
  const auto key = store_.find(hash);
  if (key) names_.add(number, hash, *key);
  return key;
}

}  // namespace cenote::indexer
