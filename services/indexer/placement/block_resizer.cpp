#include "services/indexer/placement/block_resizer.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "services/indexer/placement/event_order.hpp"

namespace cenote::indexer {

bool block_resizer::is_needed(const event_batch& batch) const noexcept {
  if (rules_.block_tokens == 0) return false;
  if (!joiner_.empty() || most_cuts() > 1) return true;
  return std::ranges::any_of(batch.events, [this](const engine_event& event) {
    return event.block_tokens != 0 && event.block_tokens != rules_.block_tokens;
  });
}

bool block_resizer::rewrite(const event_batch& batch, batch_rewrite out) {
  out.batch.clear();
  out.batch.dp_rank = batch.dp_rank;
  joiner_.begin(batch);
  visit_in_order(batch, [&](const engine_event& event) {
    rewrite_event(batch, event, out);
    out.hand_on_many();
  });
  out.hand_on();
  out.batch.trim();
  joiner_.trim();
  return out.is_parent_unknown;
}

void block_resizer::rewrite_event(const event_batch& batch, const engine_event& event, batch_rewrite& out) {
  switch (event.kind) {
    case event_kind::stored: return store(batch, event, out);
    case event_kind::removed: joiner_.release(batch, event, out); return name_blocks(batch, event, out);
    case event_kind::cleared: joiner_.clear(batch); return copy(batch, event, out);
  }
}

void block_resizer::store(const event_batch& batch, const engine_event& event, batch_rewrite& out) {
  if (kind_ == publisher_kind::node) return name_blocks(batch, event, out);
  if (use_of(event.attention) == group_use::ignored) return copy(batch, event, out);
  if (!event.tokens.empty() && !set_size(event)) return out.refuse(placement_refusal::bounds, event.hashes.size);
  if (event.tokens.empty() || event.is_sparse()) {
    joiner_.hold(batch, event, out);
    return name_blocks(batch, event, out);
  }
  const auto [shorter, longer] = std::minmax(rules_.block_tokens, event.block_tokens);
  if (longer % shorter != 0 || longer / shorter > resize_rules::most_ratio) {
    return out.refuse(placement_refusal::size, event.hashes.size);
  }
  if (event.block_tokens >= rules_.block_tokens) return cut(batch, event, out);
  joiner_.store(batch, event, out);
}

void block_resizer::copy(const event_batch& batch, const engine_event& event, batch_rewrite& out) const {
  engine_event added = out.begin_event(batch, event);
  const std::size_t first = out.batch.hashes.size();
  const auto hashes = batch.hashes_of(event);
  out.batch.hashes.insert(out.batch.hashes.end(), hashes.begin(), hashes.end());
  added.hashes = range_from(first, out.batch.hashes);
  out.batch.events.push_back(added);
}

void block_resizer::append_names(std::uint64_t hash, std::uint32_t cuts, std::vector<std::uint64_t>& hashes) const {
  for (std::uint32_t distance = cuts; distance-- > 0;) {
    hashes.push_back(rules_.naming == block_naming::common ? hash : cut_name(hash, distance));
  }
}

// Blocks with their tokens: as many names, lists and keys as there are blocks of the index.
void block_resizer::cut(const event_batch& batch, const engine_event& event, batch_rewrite& out) const {
  const std::uint32_t cuts = event.block_tokens / rules_.block_tokens;
  engine_event added = out.begin_event(batch, event);
  added.block_tokens = rules_.block_tokens;
  added.engine_tokens = event.block_tokens;
  const std::size_t first_hash = out.batch.hashes.size(), first_token = out.batch.tokens.size();
  for (const std::uint64_t hash : batch.hashes_of(event)) append_names(hash, cuts, out.batch.hashes);
  const auto tokens = batch.tokens_of(event);
  out.batch.tokens.insert(out.batch.tokens.end(), tokens.begin(), tokens.end());
  added.hashes = range_from(first_hash, out.batch.hashes);
  added.tokens = range_from(first_token, out.batch.tokens);
  const std::size_t first_list = out.batch.extra_keys.blocks.size();
  cut_lists(batch, event, cuts, out);
  added.extra_keys = range_from(first_list, out.batch.extra_keys.blocks);
  out.batch.events.push_back(added);
}

void block_resizer::cut_lists(const event_batch& batch, const engine_event& event, std::uint32_t cuts,
                              batch_rewrite& out) const {
  const extra_key_view lists = batch.extra_keys_of(event);
  for (std::size_t i = 0; i < lists.blocks.size(); ++i) {
    out.append_list(lists.list(i));
    auto& blocks = out.batch.extra_keys.blocks;
    const array_range list = blocks.back();
    const array_range further = rules_.lists == list_place::each_block ? list : array_range{list.first, 0};
    blocks.insert(blocks.end(), cuts - 1, further);
  }
}

// Blocks that their names alone stand for; those of parts are the joiner's.
void block_resizer::name_blocks(const event_batch& batch, const engine_event& event, batch_rewrite& out) const {
  const std::uint32_t cuts = rules_.naming == block_naming::common ? 1 : cuts_of(event);
  const auto hashes = batch.hashes_of(event);
  const auto leading =
      kind_ == publisher_kind::node ? batch.leading_hashes_of(event) : std::span<const std::uint64_t>();
  for (std::size_t next = 0; next < hashes.size(); out.hand_on_many()) {
    engine_event added = out.begin_event(batch, event);
    if (added.kind == event_kind::stored) added.block_tokens = rules_.block_tokens;
    if (cuts > 1) added.engine_tokens = cuts * rules_.block_tokens;
    const std::size_t first = out.batch.hashes.size();
    for (; next < hashes.size() && out.batch.hashes.size() < batch_rewrite::most_hashes; ++next) {
      if (joiner_.has(hashes[next])) continue;
      append_names(hashes[next], cuts, out.batch.hashes);
      if (!leading.empty()) append_names(leading[next], cuts, out.batch.leading_hashes);
    }
    added.hashes = range_from(first, out.batch.hashes);
    if (!added.hashes.empty()) out.batch.events.push_back(added);
  }
}

bool block_resizer::set_size(const engine_event& event) {
  constexpr std::size_t most_groups = 64;
  const auto found = std::ranges::find(sizes_, event.group, &group_size::group);
  if (found != sizes_.end()) {
    found->tokens = event.block_tokens;
    return true;
  }
  if (sizes_.size() == most_groups) return false;
  sizes_.push_back({event.group, event.block_tokens});
  return true;
}

void block_resizer::set_cuts(std::uint32_t cuts) {
  sizes_.assign(1, {std::nullopt, cuts * rules_.block_tokens});
}

std::uint32_t block_resizer::most_cuts() const noexcept {
  return cuts_of(engine_event{});
}

// An event that names no group is about all of them: names that there are not do no harm.
std::uint32_t block_resizer::cuts_of(const engine_event& event) const noexcept {
  std::uint32_t most = 1;
  for (const group_size& each : sizes_) {
    const bool is_whole = each.tokens % rules_.block_tokens == 0;
    const std::uint32_t cuts = each.tokens / rules_.block_tokens;
    const bool is_meant = !event.group || !each.group || each.group == event.group;
    if (is_meant && is_whole && cuts <= resize_rules::most_ratio) most = std::max(most, cuts);
  }
  return most;
}

void block_resizer::clear() noexcept {
  sizes_.clear();
  joiner_.clear();
}

}  // namespace cenote::indexer
