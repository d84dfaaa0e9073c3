#include "services/indexer/placement/placer.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "services/indexer/placement/event_order.hpp"

namespace cenote::indexer {

namespace {

// Blocks leave a sixth of the memory for names, spans and sets. A quarter of that is for publishers that have a place:
// one that begins anew would else lose what it gave back to those that wait for a place.
bool has_headroom(const index_budget& budget) noexcept {
  return budget.used() <= budget.limit() - budget.limit() / 24;
}

}  // namespace

placer::placer(forest& index, const token_processor& keys, std::uint32_t block_tokens) noexcept
    : index_(index),
      processor_(keys),
      resize_rules_{
          .block_tokens = block_tokens, .naming = block_naming::distinct, .lists = list_place_of(keys.chain())},
      parts_memory_(index.budget(), index.budget().limit() / 2),
      domains_(index),
      members_(index),
      expected_(index) {}

result<void> placer::open(publisher_id publisher, const publisher_identity& identity) {
  const auto is_long = [](std::string_view name) { return name.size() > holder_table::most_name; };
  if (identity.pod.empty() || is_long(identity.pod) || is_long(identity.model)) {
    return fail(error_code::invalid_argument, "publisher `" + identity.name + "`: a pod's name has 1 to " +
                                                  std::to_string(holder_table::most_name) +
                                                  " bytes, a model's as many at most");
  }
  if (publishers_.contains(publisher)) {
    return fail(error_code::invalid_argument, "publisher `" + identity.name + "` is open already");
  }
  if (!has_headroom(index_.budget())) {
    return fail(error_code::limit_exceeded, "publisher `" + identity.name +
                                                "`: what is left of index.memory is kept for publishers that have a "
                                                "place already; more memory would make room");
  }
  const auto model =
      index_.models().obtain(identity.model, [&](model_number number) { return index_.holders().has_members(number); });
  if (!model || !members_.add_publisher(identity.pod, *model, identity.node)) {
    if (model) members_.remove_publisher(identity.pod, *model);
    if (model) index_.models().release(*model);
    return fail(error_code::limit_exceeded, "publisher `" + identity.name +
                                                "`: there is no room for another pod or model; index.memory or the "
                                                "bounds of pods and models are reached");
  }
  auto added = std::make_unique<placed_publisher>(identity, *model, index_.budget(), resize_rules_, parts_memory_);
  if (added->is_node()) added->names = index_.begin_domain().value_or(no_domain);
  join_machine(*added);
  publishers_.emplace(publisher, std::move(added));
  return {};
}

const placed_publisher* placer::find(publisher_id publisher) const noexcept {
  const auto found = publishers_.find(publisher);
  return found == publishers_.end() ? nullptr : found->second.get();
}

placement_effect placer::apply(publisher_id publisher, const event_batch& batch) {
  placement_effect effect;
  const auto found = publishers_.find(publisher);
  if (found == publishers_.end()) return effect;
  placed_publisher& target = *found->second;
  const std::uint64_t misses = target.counters.misses();
  ++target.counters.batches;
  for (std::size_t i = 0; i < batch.faults.size(); ++i) target.counters.faults[i] += batch.faults[i];
  if (add_rank(target, batch.dp_rank)) {
    change_all(target, batch, effect);
  } else {
    for (const engine_event& event : batch.events) {
      target.counters.refuse(placement_refusal::bounds, event.hashes.size);
    }
  }
  if (target.counters.misses() != misses && !std::exchange(target.has_dropped, true)) apply_mark(target);
  return effect;
}

void placer::change_all(placed_publisher& publisher, const event_batch& batch, placement_effect& effect) {
  if (publisher.is_node() && publisher.machine != nullptr) set_cuts(publisher);
  const bool is_orphan = publisher.resizer.resize(batch, resized_, publisher.counters, [&](const event_batch& resized) {
    set_step(publisher, publisher.is_node() ? 1 : publisher.resizer.most_cuts());
    visit_in_order(resized, [&](const engine_event& event) { change(publisher, resized, event, effect); });
  });
  effect.is_parent_unknown = effect.is_parent_unknown || is_orphan;
}

// A node has its engines' blocks, as long as theirs.
void placer::set_cuts(placed_publisher& node) {
  if (resize_rules_.block_tokens == 0) return;
  std::uint32_t most = 1;
  for (const placed_publisher* const engine : node.machine->engines) {
    most = std::max(most, engine->resizer.most_cuts());
  }
  node.resizer.set_cuts(most);
}

void placer::change(placed_publisher& publisher, const event_batch& batch, const engine_event& event,
                    placement_effect& effect) {
  if (event.kind == event_kind::stored) return store(publisher, batch, event, effect);
  if (event.kind == event_kind::cleared) {
    if (publisher.is_node() && event.is_medium_named) return clear_node_medium(publisher, batch, event);
    return clear_media(publisher, batch, effect);
  }
  if (publisher.is_node()) return remove_node_blocks(publisher, batch, event);
  remove(publisher, batch, event);
}

void placer::store(placed_publisher& publisher, const event_batch& batch, const engine_event& event,
                   placement_effect& effect) {
  const std::uint32_t blocks = event.hashes.size;
  const cache_group* const group = group_of(publisher, event);
  const auto medium = index_.holders().medium_of(batch.medium_of(event));
  if (group == nullptr || !medium) return publisher.counters.refuse(placement_refusal::bounds, blocks);
  if (group->use == group_use::ignored) return publisher.counters.refuse(placement_refusal::ignored_group, blocks);
  const bool has_tokens = !event.tokens.empty();
  if (has_tokens && group->block_tokens != 0 && group->block_tokens != event.block_tokens && group->slot != 0) {
    return publisher.counters.refuse(placement_refusal::size, blocks);
  }
  const auto rank = static_cast<std::uint16_t>(publisher.is_node() ? 0 : batch.dp_rank);
  const holder stored_by = open_holder(publisher, rank, kind_of(group->slot, *medium));
  if (stored_by == 0) return publisher.counters.refuse(placement_refusal::bounds, blocks);
  if (publisher.is_node()) return hold_node_blocks(publisher, batch, event, stored_by);
  if (!has_tokens || event.is_sparse()) return hold_known(publisher, batch, event, stored_by);
  place(publisher, batch, event, stored_by, effect);
}

// Blocks with their tokens: their keys are their places.
void placer::place(placed_publisher& publisher, const event_batch& batch, const engine_event& event, holder stored_by,
                   placement_effect& effect) {
  const std::uint32_t blocks = event.hashes.size;
  const std::string_view lora_name = batch.lora_name_of(event);
  adapter_domains* const domains = domains_.obtain(publisher.domains, publisher.model, lora_name, event.engine_tokens);
  if (domains == nullptr) return publisher.counters.refuse(placement_refusal::bounds, blocks);
  if (!lora_name.empty()) (void)index_.models().add_adapter(lora_name, publisher.model);
  if (!add_size(publisher, event.block_tokens)) {
    return publisher.counters.refuse(placement_refusal::size, blocks);
  }
  token_run run{.tokens = batch.tokens_of(event), .extra_keys = batch.extra_keys_of(event), .parent = std::nullopt};
  block_number parent = no_block;
  if (event.parent) {
    parent = parent_of(publisher, *domains, *event.parent);
    if (parent != no_block) run.parent = index_.key_of(parent);
    if (!run.parent) {
      effect.is_parent_unknown = true;
      return publisher.counters.refuse(placement_refusal::unknown_parent, blocks);
    }
  }
  const key_space space{.model = publisher.identity.model, .lora_name = lora_name, .block_tokens = event.block_tokens};
  keys_.resize(blocks);
  processor_.write_keys(run, space, keys_);
  const auto hashes = batch.hashes_of(event);
  const std::uint32_t step = step_of(event);
  auto stored = store_in(publisher, *domains, parent, hashes, stored_by, step);
  if (!stored && stored.error() == store_refusal::name_conflict && domains->private_one == no_domain &&
      domains_.split(*domains)) {
    // By the parent's name others may mean another block.
    if (event.parent && parent_of(publisher, *domains, *event.parent) != parent) {
      effect.is_parent_unknown = true;
      return publisher.counters.refuse(placement_refusal::unknown_parent, blocks);
    }
    stored = store_in(publisher, *domains, parent, hashes, stored_by, step);
  }
  if (!stored) return publisher.counters.refuse(placement_refusal::conflict, blocks);
  publisher.counters.stored += *stored;
  publisher.counters.refuse(placement_refusal::memory, blocks - *stored);
  resolve_pending(publisher, present_domain(*domains), hashes.first(*stored));
}

// Engine's blocks that are stored again on the GPU are passed: what they share with others is counted. A conflict
// leaves all as it was.
std::expected<std::size_t, store_refusal> placer::store_in(const placed_publisher& publisher,
                                                           const adapter_domains& domains, block_number parent,
                                                           std::span<const std::uint64_t> hashes, holder stored_by,
                                                           std::uint32_t step) {
  const name_domain domain = present_domain(domains);
  const store_rule rule{domain == domains.shared ? name_rule::one_name : name_rule::several_names, step};
  if (step == 1) return index_.store(domain, parent, keys_, hashes, stored_by, rule);
  const std::size_t count = hashes.size();
  const auto is_passed = [&](std::size_t first) {
    return is_repeat(block_of(publisher, domains, hashes[first + step - 1]), stored_by);
  };
  blocks_.clear();
  for (std::size_t first = 0; first < count;) {
    std::size_t end = first;
    while (end < count && !is_passed(end)) end += step;
    if (end > first) {
      const block_number before = first == 0 ? parent : block_of(publisher, domains, hashes[first - 1]);
      if (first > 0 && before == no_block) return first;  // memory took it meanwhile
      const auto some = hashes.subspan(first, end - first);
      const auto stored =
          index_.store(domain, before, std::span(keys_).subspan(first, some.size()), some, stored_by, rule);
      if (!stored) (void)index_.remove(blocks_, stored_by);
      if (!stored || *stored < some.size()) return stored ? first + *stored : stored;
      for (const std::uint64_t hash : some) blocks_.push_back(index_.block_of(domain, hash));
    }
    first = end;
    while (first < count && is_passed(first)) first += step;
  }
  return count;
}

// Names that something waits for: blocks that a router expected, and a node's that had no name yet.
void placer::resolve_pending(placed_publisher& publisher, name_domain domain, std::span<const std::uint64_t> hashes) {
  if (!expected_.empty()) {
    blocks_.clear();
    for (const std::uint64_t hash : hashes) blocks_.push_back(index_.block_of(domain, hash));
    expected_.end(publisher.identity.pod, publisher.model, blocks_);
  }
  placed_publisher* const node = publisher.machine == nullptr ? nullptr : publisher.machine->node;
  if (node == nullptr || node->pending.empty()) return;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const medium_mask media = node->pending.extract(hashes[i]);
    if (media == 0) continue;
    // A name that waited is an engine's: that of all blocks into which the engine's is cut.
    std::size_t first = i;
    while (first > 0 && hashes[first - 1] == cut_name(hashes[i], static_cast<std::uint32_t>(i - first + 1))) --first;
    hold_pending(*node, domain, hashes.subspan(first, i - first + 1), media);
  }
}

void placer::hold_pending(placed_publisher& node, name_domain domain, std::span<const std::uint64_t> hashes,
                          medium_mask media) {
  blocks_.clear();
  for (const std::uint64_t hash : hashes) {
    const block_number block = index_.block_of(domain, hash);
    if (index_.name(node.names, block, hash)) {
      blocks_.push_back(block);
    } else {
      node.counters.refuse(placement_refusal::memory, 1);
    }
  }
  if (blocks_.empty()) return;
  for (medium_number medium = 0; medium < most_media; ++medium) {
    if (((media >> medium) & 1) == 0) continue;
    const holder stored_by = open_holder(node, 0, kind_of(0, medium));
    if (index_.is_held(blocks_.back(), stored_by)) continue;
    const repeat_rule repeats = hashes.size() == 1 ? repeat_rule::by_medium : repeat_rule::counted;
    node.counters.stored += index_.hold(blocks_, stored_by, repeats).blocks;
  }
}

// Names of blocks that the publisher has stored before, in another medium or group.
void placer::hold_known(placed_publisher& publisher, const event_batch& batch, const engine_event& event,
                        holder stored_by) {
  const auto hashes = batch.hashes_of(event);
  blocks_.clear();
  for (const std::uint64_t hash : hashes) {
    block_number found = no_block;
    for (const adapter_domains& domains : publisher.domains) {
      found = block_of(publisher, domains, hash);
      if (found != no_block) break;
    }
    blocks_.push_back(found);
  }
  const block_change change = hold(blocks_, step_of(event), stored_by);
  publisher.counters.stored += change.blocks;
  publisher.counters.refuse(placement_refusal::unknown_name, change.unknown);
}

std::uint32_t placer::step_of(const engine_event& event) const noexcept {
  return event.engine_tokens <= resize_rules_.block_tokens ? 1 : event.engine_tokens / resize_rules_.block_tokens;
}

/// Whether a store of the engine's block that ends with this one changes nothing.
bool placer::is_repeat(block_number last, holder stored_by) const noexcept {
  const bool is_set = !is_counted(index_.holders().place(stored_by).kind);
  return is_set && last != no_block && index_.is_held(last, stored_by);
}

block_change placer::hold(std::span<const block_number> blocks, std::uint32_t step, holder stored_by) {
  if (step == 1) return index_.hold(blocks, stored_by);
  block_change sum;
  for (std::size_t first = 0; first < blocks.size(); first += step) {
    const auto whole = blocks.subspan(first, step);
    if (is_repeat(whole.back(), stored_by)) continue;
    const block_change one = index_.hold(whole, stored_by, repeat_rule::counted);
    sum.blocks += one.blocks;
    sum.unknown += one.unknown;
  }
  return sum;
}

// An engine's block that is not held takes nothing from others that share a part of it; one whose last block memory has
// taken gives its part up.
std::size_t placer::remove(std::span<const block_number> blocks, std::uint32_t step, holder removed) {
  if (step == 1) return index_.remove(blocks, removed).blocks;
  std::size_t sum = 0;
  for (std::size_t first = 0; first < blocks.size(); first += step) {
    const auto whole = blocks.subspan(first, step);
    if (whole.back() != no_block && !index_.is_held(whole.back(), removed)) continue;
    sum += index_.remove(whole, removed).blocks;
  }
  return sum;
}

block_number placer::block_of_node(const placed_publisher& node, std::uint64_t hash) const noexcept {
  const block_number known = index_.block_of(node.names, hash);
  if (known != no_block) return known;
  for (const placed_publisher* const engine : node.machine->engines) {
    for (const adapter_domains& domains : engine->domains) {
      const block_number found = block_of(*engine, domains, hash);
      if (found != no_block) return found;
    }
  }
  return no_block;
}

// A node's blocks have the names of the engines on its machine; names that no engine has published yet wait.
void placer::hold_node_blocks(placed_publisher& node, const event_batch& batch, const engine_event& event,
                              holder stored_by) {
  const auto hashes = batch.hashes_of(event);
  const auto leading = batch.leading_hashes_of(event);
  if (node.names == no_domain) return node.counters.refuse(placement_refusal::bounds, hashes.size());
  const medium_number medium = medium_of(index_.holders().place(stored_by).kind);
  const std::uint32_t step = step_of(event);
  for (std::size_t first = 0; first < hashes.size(); first += step) {
    blocks_.clear();
    for (std::size_t i = first; i < first + step; ++i) {
      const block_number block = name_node_block(node, hashes[i], leading.empty() ? hashes[i] : leading[i], medium);
      if (block != no_block) blocks_.push_back(block);
    }
    if (blocks_.empty() || index_.is_held(blocks_.back(), stored_by)) continue;
    const repeat_rule repeats = step == 1 ? repeat_rule::by_medium : repeat_rule::counted;
    node.counters.stored += index_.hold(blocks_, stored_by, repeats).blocks;
  }
}

/// The block of a node's name, or of the other form of it; no_block: it waits, or finds no room.
block_number placer::name_node_block(placed_publisher& node, std::uint64_t hash, std::uint64_t leading,
                                     medium_number medium) {
  for (const std::uint64_t name : {hash, leading}) {
    const block_number block = block_of_node(node, name);
    if (block != no_block && index_.name(node.names, block, name)) return block;
    if (block != no_block || hash == leading) break;
  }
  bool is_kept = node.pending.add(hash, medium);
  if (hash != leading) is_kept = node.pending.add(leading, medium) && is_kept;
  if (!is_kept) node.counters.refuse(placement_refusal::unknown_name, 1);
  return no_block;
}

void placer::remove_node_blocks(placed_publisher& node, const event_batch& batch, const engine_event& event) {
  const auto medium = index_.holders().medium_of(batch.medium_of(event));
  if (!medium) return node.counters.refuse(placement_refusal::bounds, event.hashes.size);
  const holder removed = find_holder(node, 0, kind_of(0, *medium));
  for (const auto hashes : {batch.hashes_of(event), batch.leading_hashes_of(event)}) {
    for (const std::uint64_t hash : hashes) node.pending.remove(hash, *medium);
    if (removed == 0) continue;
    blocks_.clear();
    for (const std::uint64_t hash : hashes) blocks_.push_back(index_.block_of(node.names, hash));
    node.counters.removed += remove(blocks_, step_of(event), removed);
  }
}

void placer::remove(placed_publisher& publisher, const event_batch& batch, const engine_event& event) {
  const auto medium = index_.holders().medium_of(batch.medium_of(event));
  if (!medium) return publisher.counters.refuse(placement_refusal::bounds, event.hashes.size);
  const auto hashes = batch.hashes_of(event);
  const auto rank = static_cast<std::uint16_t>(batch.dp_rank);
  for (const adapter_domains& domains : publisher.domains) {
    blocks_.clear();
    for (const std::uint64_t hash : hashes) blocks_.push_back(block_of(publisher, domains, hash));
    if (*medium == gpu_medium) expected_.end(publisher.identity.pod, publisher.model, blocks_);
    for (const cache_group& group : publisher.groups) {
      // An event that names no group is about all of them.
      if (group.use == group_use::ignored || (event.group && group.index != event.group)) continue;
      const holder removed = find_holder(publisher, rank, kind_of(group.slot, *medium));
      if (removed != 0) publisher.counters.removed += remove(blocks_, step_of(event), removed);
    }
  }
}

void placer::clear_media(placed_publisher& publisher, const event_batch& batch, placement_effect& effect) {
  ++publisher.counters.clears;
  const clear_scope scope = publisher.is_node() ? clear_scope::all : publisher.identity.clear;
  const std::uint32_t rank = publisher.is_node() ? 0 : batch.dp_rank;
  end_holders(publisher, [&](const opened_holder& each) {
    return each.rank == rank && (scope == clear_scope::all || medium_of(each.kind) == gpu_medium);
  });
  expected_.end(publisher.identity.pod, publisher.model);
  if (scope == clear_scope::all) publisher.pending.clear();
  effect.is_all_cleared = scope == clear_scope::all && publisher.holders.empty();
}

// A node clears each medium for itself.
void placer::clear_node_medium(placed_publisher& node, const event_batch& batch, const engine_event& event) {
  ++node.counters.clears;
  const auto cleared = index_.holders().medium_of(batch.medium_of(event));
  if (!cleared) return;  // no block was stored there
  end_holders(node, [&](const opened_holder& each) { return medium_of(each.kind) == *cleared; });
  node.pending.clear(*cleared);
}

// Holders that end are those of all publishers of the pod: a number that one has ended may be another pod's next.
template <class Predicate>
void placer::end_holders(placed_publisher& publisher, Predicate&& is_ended) {
  const bool is_alone = members_.publishers(publisher.identity.pod, publisher.model) <= 1;
  for (const opened_holder& each : publisher.holders) {
    if (!is_ended(each)) continue;
    index_.clear(each.number);
    if (is_alone) continue;
    for (const auto& [number, other] : publishers_) {
      if (other.get() != &publisher)
        std::erase_if(other->holders, [&](const auto& one) { return one.number == each.number; });
    }
  }
  std::erase_if(publisher.holders, is_ended);
}

// Holders of another publisher of the pod stay.
void placer::end_shared_holders(placed_publisher& publisher) {
  const bool is_alone = members_.publishers(publisher.identity.pod, publisher.model) <= 1;
  std::erase_if(publisher.holders, [&](const opened_holder& one) {
    return !is_alone && std::ranges::any_of(publishers_, [&](const auto& entry) {
      return entry.second.get() != &publisher &&
             std::ranges::find(entry.second->holders, one.number, &opened_holder::number) !=
                 entry.second->holders.end();
    });
  });
  end_holders(publisher, [](const opened_holder&) { return true; });
}

// Slots of groups, which the model counts.
void placer::end_groups(placed_publisher& publisher) {
  for (const cache_group& group : publisher.groups) {
    if (group.use != group_use::ignored && group.slot != 0) index_.models().release_slot(publisher.model, group.slot);
  }
  publisher.groups.clear();
  set_slots(publisher, 0);
}

void placer::clear(publisher_id publisher) {
  const auto found = publishers_.find(publisher);
  if (found == publishers_.end()) return;
  placed_publisher& target = *found->second;
  end_holders(target, [](const opened_holder&) { return true; });
  target.resizer.clear();
  expected_.end(target.identity.pod, target.model);
  domains_.renew(target.domains, target.model);
  end_groups(target);
  if (std::exchange(target.has_dropped, false)) apply_mark(target);
  if (!target.is_node()) return;
  target.pending.clear();
  if (target.names != no_domain) index_.end_domain(target.names);
  target.names = index_.begin_domain().value_or(no_domain);
}

void placer::close(publisher_id publisher) {
  const auto found = publishers_.find(publisher);
  if (found == publishers_.end()) return;
  placed_publisher& target = *found->second;
  end_shared_holders(target);
  expected_.end(target.identity.pod, target.model);
  end_groups(target);
  for (const std::uint32_t size : target.block_sizes) index_.models().release_size(target.model, size);
  domains_.release(target.domains, target.model);
  if (target.names != no_domain) index_.end_domain(target.names);
  members_.remove_publisher(target.identity.pod, target.model);
  index_.models().release(target.model);
  leave_machine(target);
  publishers_.erase(found);
}

void placer::mark(publisher_id publisher, member_mark state) {
  const auto found = publishers_.find(publisher);
  if (found == publishers_.end() || found->second->mark == state) return;
  found->second->mark = state;
  apply_mark(*found->second);
}

// Memory took blocks that a pod has: its scores may be too low. So may those of a pod whose blocks found no room.
void placer::mark_dropped() {
  const std::uint64_t evicted = index_.figures().evicted_held;
  if (evicted == std::exchange(evicted_held_, evicted)) return;
  for (const auto& [number, publisher] : publishers_) {
    if (publisher->has_dropped) continue;
    publisher->has_dropped = std::ranges::any_of(
        publisher->holders, [&](const opened_holder& each) { return index_.holders().dropped(each.number) > 0; });
    if (publisher->has_dropped) apply_mark(*publisher);
  }
}

void placer::apply_mark(const placed_publisher& publisher) {
  const member_mark state{.is_hidden = publisher.mark.is_hidden,
                          .is_degraded = publisher.mark.is_degraded || publisher.has_dropped};
  const auto& [pod, model] = std::tie(publisher.identity.pod, publisher.model);
  for (const std::uint16_t rank : publisher.ranks) members_.mark(pod, model, rank, state);
  // Before its first batch a pod's only publisher stands for its first rank.
  if (publisher.ranks.empty() && members_.publishers(pod, model) == 1) members_.mark(pod, model, 0, state);
}

bool placer::clear(std::string_view pod, std::string_view medium) {
  std::optional<medium_number> cleared;
  if (!medium.empty()) {
    const auto number = index_.holders().medium_of(medium);
    if (!number) return false;
    cleared = *number;
  }
  for (const auto& [number, publisher] : publishers_) {
    if (publisher->identity.pod != pod) continue;
    end_holders(*publisher, [&](const opened_holder& each) { return !cleared || medium_of(each.kind) == *cleared; });
    if (!cleared || *cleared == gpu_medium) expected_.end(pod, publisher->model);
    publisher->resizer.clear_medium(medium);
    if (!cleared) publisher->pending.clear();
  }
  return true;
}

bool placer::add_rank(placed_publisher& publisher, std::uint32_t rank) {
  if (publisher.is_node()) rank = 0;
  if (rank > std::numeric_limits<std::uint16_t>::max()) return false;
  const auto added = static_cast<std::uint16_t>(rank);
  if (std::ranges::find(publisher.ranks, added) != publisher.ranks.end()) return true;
  if (!members_.add_rank(publisher.identity.pod, publisher.model, added)) return false;
  if (publisher.ranks.empty() && members_.publishers(publisher.identity.pod, publisher.model) == 1) {
    members_.mark(publisher.identity.pod, publisher.model, 0, {});
  }
  publisher.ranks.push_back(added);
  members_.set_slots(publisher.identity.pod, publisher.model, added, publisher.slots);
  members_.set_step(publisher.identity.pod, publisher.model, added, publisher.step);
  apply_mark(publisher);
  return true;
}

void placer::set_slots(placed_publisher& publisher, std::uint32_t slots) {
  publisher.slots = slots;
  for (const std::uint16_t rank : publisher.ranks) {
    members_.set_slots(publisher.identity.pod, publisher.model, rank, slots);
  }
}

void placer::set_step(placed_publisher& publisher, std::uint32_t step) {
  if (std::exchange(publisher.step, step) == step) return;
  for (const std::uint16_t rank : publisher.ranks) {
    members_.set_step(publisher.identity.pod, publisher.model, rank, step);
  }
}

void placer::join_machine(placed_publisher& added) {
  if (!added.is_node() && added.identity.node.empty()) return;
  std::string pod = added.is_node() ? added.identity.pod : pod_members::pod_of_node(added.identity.node);
  added.machine = &machines_[{added.model, std::move(pod)}];
  if (added.is_node()) {
    added.machine->node = &added;
  } else {
    added.machine->engines.push_back(&added);
  }
}

void placer::leave_machine(placed_publisher& removed) {
  if (removed.machine == nullptr) return;
  if (removed.machine->node == &removed) removed.machine->node = nullptr;
  std::erase(removed.machine->engines, &removed);
  if (removed.machine->node == nullptr && removed.machine->engines.empty()) {
    std::erase_if(machines_, [&](const auto& entry) { return &entry.second == removed.machine; });
  }
}

bool placer::expect(std::string_view pod, std::string_view model, std::span<const std::uint64_t> keys, feed_time now,
                    std::chrono::milliseconds ttl) {
  const auto facts = index_.models().find(model);
  if (!facts || index_.holders().find_member(pod, facts->number, 0) == holder_table::no_member) return false;
  return expected_.add(pod, facts->number, keys, now, ttl);
}

bool placer::add_size(placed_publisher& publisher, std::uint32_t block_tokens) {
  constexpr std::size_t most_sizes = 4;  // of a publisher, so that a strange one takes no other's room
  auto& sizes = publisher.block_sizes;
  if (std::ranges::find(sizes, block_tokens) != sizes.end()) return true;
  if (!index_.models().add_size(publisher.model, block_tokens)) return false;
  sizes.push_back(block_tokens);
  if (sizes.size() > most_sizes) {  // an engine begins anew with another size now and then
    index_.models().release_size(publisher.model, sizes.front());
    sizes.erase(sizes.begin());
  }
  return true;
}

// The cache group of an event; null: there are too many, and its pod has no prefix any more.
cache_group* placer::group_of(placed_publisher& publisher, const engine_event& event) {
  constexpr std::size_t most_groups = 64;
  const auto found = std::ranges::find(publisher.groups, event.group, &cache_group::index);
  if (found != publisher.groups.end()) {
    if (found->block_tokens == 0) found->block_tokens = event.block_tokens;
    return &*found;
  }
  cache_group added{
      .index = event.group, .use = use_of(event.attention), .slot = 0, .block_tokens = event.block_tokens};
  const bool is_full = publisher.groups.size() == most_groups;
  if (added.use != group_use::ignored && (is_full || !add_group_slot(publisher, added, event))) {
    set_slots(publisher, publisher.slots | (1U << closed_slot));
    return nullptr;
  }
  return is_full ? nullptr : &publisher.groups.emplace_back(added);
}

// The first group that makes a prefix has slot 0, so that models with one group need no other.
bool placer::add_group_slot(placed_publisher& publisher, cache_group& added, const engine_event& event) {
  constexpr std::ptrdiff_t most_slots_of_publisher = 12;
  const auto is_first = [](const cache_group& group) { return group.use == group_use::prefix && group.slot == 0; };
  if (added.use == group_use::window || std::ranges::any_of(publisher.groups, is_first)) {
    const auto count =
        std::ranges::count_if(publisher.groups, [](const cache_group& group) { return group.slot != 0; });
    if (count == most_slots_of_publisher) return false;
    // A window of unknown length is the whole prefix: less than the truth, never more.
    const std::uint32_t window = added.use == group_use::window ? event.window_tokens : 0;
    const auto slot = index_.models().add_slot(publisher.model, {window, event.group.value_or(0)});
    if (!slot) return false;
    added.slot = *slot;
  }
  set_slots(publisher, publisher.slots | (1U << added.slot));
  return true;
}

holder placer::find_holder(const placed_publisher& publisher, std::uint16_t rank, holder_kind kind) const noexcept {
  for (const opened_holder& each : publisher.holders) {
    if (each.rank == rank && each.kind == kind) return index_.holders().is_live(each.number) ? each.number : 0;
  }
  return 0;
}

holder placer::open_holder(placed_publisher& publisher, std::uint16_t rank, holder_kind kind) {
  if (const holder known = find_holder(publisher, rank, kind); known != 0) return known;
  // One that another publisher of the pod has ended is none.
  std::erase_if(publisher.holders, [&](const opened_holder& each) { return each.rank == rank && each.kind == kind; });
  const holder_name name{.pod = publisher.identity.pod, .model = publisher.model, .rank = rank, .kind = kind};
  auto opened = index_.holders().open(name);
  if (!opened && opened.error() == holder_refusal::too_many && !index_.holders().dead().empty()) {
    while (!index_.sweep(std::numeric_limits<std::size_t>::max())) {
    }
    opened = index_.holders().open(name);
  }
  if (!opened) return 0;
  publisher.holders.push_back({rank, kind, *opened});
  return *opened;
}

// In a publisher's own domain, else in the shared one. A publisher whose hashes differ from others' means by a shared
// name only what it holds itself.
block_number placer::block_of(const placed_publisher& publisher, const adapter_domains& domains,
                              std::uint64_t hash) const noexcept {
  if (domains.private_one == no_domain) return index_.block_of(domains.shared, hash);
  const block_number own = index_.block_of(domains.private_one, hash);
  if (own != no_block) return own;
  const block_number shared = index_.block_of(domains.shared, hash);
  return shared != no_block && is_held(publisher, shared) ? shared : no_block;
}

// The same of a parent. While events are lost, it may be one that this life of the engine has never published, and
// whose name is another's: it counts only if it is held.
block_number placer::parent_of(const placed_publisher& publisher, const adapter_domains& domains,
                               std::uint64_t hash) const noexcept {
  const block_number found = block_of(publisher, domains, hash);
  if (found == no_block || !publisher.mark.is_degraded || is_held(publisher, found)) return found;
  return domains.private_one != no_domain && index_.block_of(domains.private_one, hash) == found ? found : no_block;
}

bool placer::is_held(const placed_publisher& publisher, block_number block) const noexcept {
  return std::ranges::any_of(publisher.holders,
                             [&](const opened_holder& each) { return index_.is_held(block, each.number); });
}

}  // namespace cenote::indexer
