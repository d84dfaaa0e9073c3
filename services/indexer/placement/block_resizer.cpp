#include "services/indexer/placement/block_resizer.hpp"

#include <algorithm>
#include <new>

#include "services/indexer/events/engine_event.hpp"
#include "services/indexer/keys/extra_keys.hpp"
#include "services/indexer/placement/event_order.hpp"

namespace cenote::indexer {

namespace {

constexpr std::size_t most_hashes = std::size_t{1} << 16;  // of a rewritten batch, beyond which it is handed on
constexpr std::size_t most_groups = 64;
constexpr std::size_t most_tables = 1024;
constexpr std::size_t most_repeats = std::size_t{1} << 16;
constexpr std::uint32_t whole_distance = 0xffff'ffff;  // beyond that of any cut

array_range range_from(std::size_t first, std::size_t end) noexcept {
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end - first)};
}

array_range append_text(std::vector<char>& text, std::string_view added) {
  const std::size_t first = text.size();
  text.insert(text.end(), added.begin(), added.end());
  return range_from(first, text.size());
}

/// An event of the same kind, place and adapter, with no blocks yet.
engine_event begin_event(const event_batch& batch, const engine_event& event, event_batch& out) {
  engine_event begun = event;
  begun.hashes = {};
  begun.tokens = {};
  begun.extra_keys = {};
  begun.lora_name = append_text(out.text, batch.lora_name_of(event));
  begun.medium_text = {};
  if (event.medium == block_medium::other) begun.medium_text = append_text(out.text, batch.medium_of(event));
  return begun;
}

void append_list(std::span<const std::byte> list, extra_key_table& table) {
  const std::size_t first = table.bytes.size();
  table.bytes.insert(table.bytes.end(), list.begin(), list.end());
  table.blocks.push_back(range_from(first, table.bytes.size()));
}

}  // namespace

std::uint64_t block_resizer::cut_name(std::uint64_t hash, std::uint32_t distance) noexcept {
  if (distance == 0) return hash;
  // The finisher of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
  std::uint64_t mixed = hash + distance * 0x9e37'79b9'7f4a'7c15;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58'476d'1ce4'e5b9;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d0'49bb'1331'11eb;
  return mixed ^ (mixed >> 31U);
}

// A name that no engine's block has, so that a part is never taken for the whole.
std::uint64_t block_resizer::whole_name(std::uint64_t last_hash) const noexcept {
  return rules_.naming == block_naming::common ? last_hash : cut_name(last_hash, whole_distance);
}

void block_resizer::rewritten::hand_on() {
  if (!batch.events.empty()) sink(batch);
  const std::uint32_t rank = batch.dp_rank;
  batch.clear();
  batch.dp_rank = rank;
}

bool block_resizer::is_needed(const event_batch& batch) const noexcept {
  if (rules_.block_tokens == 0) return false;
  if (!tables_.empty() || most_cuts() > 1) return true;
  return std::ranges::any_of(batch.events, [this](const engine_event& event) {
    return event.block_tokens != 0 && event.block_tokens != rules_.block_tokens;
  });
}

bool block_resizer::rewrite(const event_batch& batch, rewritten out) {
  out.batch.clear();
  out.batch.dp_rank = batch.dp_rank;
  visit_in_order(batch, [&](const engine_event& event) {
    rewrite_event(batch, event, out);
    if (out.batch.hashes.size() >= most_hashes) out.hand_on();
  });
  out.hand_on();
  for (auto& [name, table] : tables_) table.trim();
  return out.is_parent_unknown;
}

void block_resizer::rewrite_event(const event_batch& batch, const engine_event& event, rewritten& out) {
  switch (event.kind) {
    case event_kind::stored: return store(batch, event, out);
    case event_kind::removed: release_parts(batch, event, out); return name_blocks(batch, event, out);
    case event_kind::cleared: clear_places(batch); return copy(batch, event, out);
  }
}

void block_resizer::store(const event_batch& batch, const engine_event& event, rewritten& out) {
  if (kind_ == publisher_kind::node) return name_blocks(batch, event, out);
  if (use_of(event.attention) == group_use::ignored) return copy(batch, event, out);
  if (!event.tokens.empty() && !set_size(event)) return out.refuse(placement_refusal::bounds, event.hashes.size);
  if (event.tokens.empty() || event.is_sparse()) {
    hold_parts(batch, event, out);
    return name_blocks(batch, event, out);
  }
  const std::uint32_t whole = rules_.block_tokens;
  const auto [shorter, longer] = std::minmax(whole, event.block_tokens);
  if (longer % shorter != 0 || longer / shorter > resize_rules::most_ratio) {
    return out.refuse(placement_refusal::size, event.hashes.size);
  }
  if (event.block_tokens >= whole) return cut(batch, event, out);
  store_parts(batch, event, out);
}

void block_resizer::copy(const event_batch& batch, const engine_event& event, rewritten& out) const {
  engine_event added = begin_event(batch, event, out.batch);
  const std::size_t first = out.batch.hashes.size();
  const auto hashes = batch.hashes_of(event);
  out.batch.hashes.insert(out.batch.hashes.end(), hashes.begin(), hashes.end());
  added.hashes = range_from(first, out.batch.hashes.size());
  out.batch.events.push_back(added);
}

void block_resizer::append_name(std::uint64_t hash, std::uint32_t cuts, std::vector<std::uint64_t>& hashes) const {
  for (std::uint32_t distance = cuts; distance-- > 0;) {
    hashes.push_back(rules_.naming == block_naming::common ? hash : cut_name(hash, distance));
  }
}

// Blocks with their tokens: as many names, lists and keys as there are blocks of the index.
void block_resizer::cut(const event_batch& batch, const engine_event& event, rewritten& out) const {
  const std::uint32_t cuts = event.block_tokens / rules_.block_tokens;
  engine_event added = begin_event(batch, event, out.batch);
  added.block_tokens = rules_.block_tokens;
  added.engine_tokens = event.block_tokens;
  const std::size_t first_hash = out.batch.hashes.size(), first_token = out.batch.tokens.size();
  for (const std::uint64_t hash : batch.hashes_of(event)) append_name(hash, cuts, out.batch.hashes);
  const auto tokens = batch.tokens_of(event);
  out.batch.tokens.insert(out.batch.tokens.end(), tokens.begin(), tokens.end());
  added.hashes = range_from(first_hash, out.batch.hashes.size());
  added.tokens = range_from(first_token, out.batch.tokens.size());
  const std::size_t first_list = out.batch.extra_keys.blocks.size();
  cut_lists(batch, event, cuts, out.batch);
  added.extra_keys = range_from(first_list, out.batch.extra_keys.blocks.size());
  out.batch.events.push_back(added);
}

void block_resizer::cut_lists(const event_batch& batch, const engine_event& event, std::uint32_t cuts,
                              event_batch& out) const {
  const extra_key_view lists = batch.extra_keys_of(event);
  for (std::size_t i = 0; i < lists.blocks.size(); ++i) {
    append_list(lists.list(i), out.extra_keys);
    const array_range list = out.extra_keys.blocks.back();
    const array_range further = rules_.lists == list_place::each_block ? list : array_range{list.first, 0};
    out.extra_keys.blocks.insert(out.extra_keys.blocks.end(), cuts - 1, further);
  }
}

// Blocks that their names alone stand for; those of parts are others' matter.
void block_resizer::name_blocks(const event_batch& batch, const engine_event& event, rewritten& out) const {
  const std::uint32_t cuts = rules_.naming == block_naming::common ? 1 : cuts_of(event);
  const auto hashes = batch.hashes_of(event);
  const auto leading =
      kind_ == publisher_kind::node ? batch.leading_hashes_of(event) : std::span<const std::uint64_t>();
  for (std::size_t next = 0; next < hashes.size();) {
    engine_event added = begin_event(batch, event, out.batch);
    if (added.kind == event_kind::stored) added.block_tokens = rules_.block_tokens;
    if (cuts > 1) added.engine_tokens = cuts * rules_.block_tokens;
    const std::size_t first = out.batch.hashes.size();
    for (; next < hashes.size() && out.batch.hashes.size() < most_hashes; ++next) {
      if (is_part(hashes[next])) continue;
      append_name(hashes[next], cuts, out.batch.hashes);
      if (!leading.empty()) append_name(leading[next], cuts, out.batch.leading_hashes);
    }
    added.hashes = range_from(first, out.batch.hashes.size());
    if (!added.hashes.empty()) out.batch.events.push_back(added);
    if (next == hashes.size()) return;
    out.hand_on();
  }
}

// ---------------------------------------------------------------------------------------------- parts

void block_resizer::store_parts(const event_batch& batch, const engine_event& event, rewritten& out) {
  const auto hashes = batch.hashes_of(event);
  table_entry* const entry = table_of(batch.lora_name_of(event), event.block_tokens);
  const auto place = place_of(batch, event);
  if (entry == nullptr || !place) return out.refuse(placement_refusal::bounds, hashes.size());
  part_table& table = entry->second;
  part_number before = no_part;
  if (event.parent) {
    before = table.find(*event.parent);
    if (before == no_part) {
      out.is_parent_unknown = true;
      return out.refuse(placement_refusal::unknown_parent, hashes.size());
    }
  }
  const auto tokens = batch.tokens_of(event);
  const extra_key_view lists = batch.extra_keys_of(event);
  std::optional<std::uint64_t> parent = event.parent;
  ends_.clear();
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (before != no_part && table.is_last(before)) before = no_part;
    const obtained_part part = table.obtain({.hash = hashes[i],
                                             .parent = parent,
                                             .before = before,
                                             .tokens = tokens.subspan(i * event.block_tokens, event.block_tokens),
                                             .extra_keys = lists.list(i)});
    if (part.refusal) {
      constexpr std::array reasons{placement_refusal::conflict, placement_refusal::bounds, placement_refusal::memory};
      out.refuse(reasons[static_cast<std::size_t>(*part.refusal)], hashes.size() - i);
      break;
    }
    hold(table, part.number, *place);
    // Its name is wanted for what follows, even where parts of the whole are missing.
    const bool is_name = part.is_new && table.is_last(part.number) && !table.is_complete(part.number, *place);
    if (is_name) ends_.push_back(part.number);
    before = part.number;
    parent = hashes[i];
  }
  append_stored(batch, event, *entry, *place, out);
}

// Names of parts that earlier events had with their tokens.
void block_resizer::hold_parts(const event_batch& batch, const engine_event& event, rewritten& out) {
  if (tables_.empty()) return;
  const auto place = place_of(batch, event);
  if (!place) return out.refuse(placement_refusal::bounds, event.hashes.size);
  for (table_entry& entry : tables_) {
    ends_.clear();
    for (const std::uint64_t hash : batch.hashes_of(event)) {
      if (const part_number part = entry.second.find(hash); part != no_part) hold(entry.second, part, *place);
    }
    append_stored(batch, event, entry, *place, out);
  }
}

// A second store changes nothing on the GPU, where the index may want it again; elsewhere it wants a second removal.
void block_resizer::hold(part_table& table, part_number part, part_place place) {
  if (!table.is_held(part, place)) return table.hold(part, place, ends_);
  if (places_[place].medium == name_of(block_medium::gpu)) {
    if (table.is_complete(part, place)) ends_.push_back(part);
    return;
  }
  try {
    const repeat_key key{table.hash_of(part), place};
    if (repeats_.size() < most_repeats || repeats_.contains(key)) ++repeats_[key];
  } catch (const std::bad_alloc&) {  // it goes with the first removal: less than the truth
  }
}

void block_resizer::release_parts(const event_batch& batch, const engine_event& event, rewritten& out) {
  const auto hashes = batch.hashes_of(event);
  for (auto& [name, table] : tables_) {
    for (std::size_t place = 0; place < places_.size(); ++place) {
      const place_name& facts = places_[place];
      // An event that names no group is about all of them.
      const bool is_meant = facts.rank == batch.dp_rank && facts.medium == batch.medium_of(event) &&
                            (!event.group || facts.group == event.group);
      if (!is_meant) continue;
      ends_.clear();
      release_parts(table, hashes, static_cast<part_place>(place));
      engine_event part = event;
      part.group = facts.group;
      append_removed(batch, part, table, out);
    }
  }
}

void block_resizer::release_parts(part_table& table, std::span<const std::uint64_t> hashes, part_place place) {
  for (const std::uint64_t hash : hashes) {
    const part_number part = table.find(hash);
    if (part == no_part) continue;
    if (const auto repeat = repeats_.find(repeat_key{hash, place}); repeat != repeats_.end()) {
      if (--repeat->second == 0) repeats_.erase(repeat);
      continue;
    }
    table.release(part, place, ends_);
  }
}

// Blocks that are complete now, or have names, in as few events as they have chains; what is a name alone goes again.
void block_resizer::append_stored(const event_batch& batch, const engine_event& event, const table_entry& entry,
                                  part_place place, rewritten& out) {
  const auto& [name, table] = entry;
  for (std::size_t next = 0; next < ends_.size();) {
    engine_event added = begin_event(batch, event, out.batch);
    added.block_tokens = rules_.block_tokens;
    added.engine_tokens = table.part_tokens();
    added.lora_name = append_text(out.batch.text, name.first);
    const auto parent = table.parent_of(ends_[next]);
    added.parent = parent ? std::optional(whole_name(*parent)) : std::nullopt;
    const std::size_t first_hash = out.batch.hashes.size(), first_token = out.batch.tokens.size();
    const std::size_t first_list = out.batch.extra_keys.blocks.size();
    do {
      append_path(table, ends_[next], name.first, out.batch);
      ++next;
    } while (next < ends_.size() && table.parent_of(ends_[next]) == table.hash_of(ends_[next - 1]));
    added.hashes = range_from(first_hash, out.batch.hashes.size());
    added.tokens = range_from(first_token, out.batch.tokens.size());
    added.extra_keys = range_from(first_list, out.batch.extra_keys.blocks.size());
    out.batch.events.push_back(added);
  }
  std::erase_if(ends_, [&](part_number last) { return table.is_complete(last, place); });
  append_removed(batch, event, table, out);
}

void block_resizer::append_removed(const event_batch& batch, const engine_event& event, const part_table& table,
                                   rewritten& out) const {
  if (ends_.empty()) return;
  engine_event added = begin_event(batch, event, out.batch);
  added.kind = event_kind::removed;
  added.parent = std::nullopt;
  const std::size_t first = out.batch.hashes.size();
  for (const part_number last : ends_) out.batch.hashes.push_back(whole_name(table.hash_of(last)));
  added.hashes = range_from(first, out.batch.hashes.size());
  out.batch.events.push_back(added);
}

// One list for the whole: what the parts' lists have, in order.
void block_resizer::append_path(const part_table& table, part_number last, std::string_view lora_name,
                                event_batch& out) const {
  std::uint64_t elements = 0;
  std::vector<std::byte> bytes;
  table.visit_path(last, [&](std::span<const std::uint32_t> tokens, std::span<const std::byte> list) {
    out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
    const extra_key_elements some = elements_of(list, lora_name);
    elements += some.count;
    if (some.count != 0) bytes.insert(bytes.end(), some.bytes.begin(), some.bytes.end());
  });
  out.hashes.push_back(whole_name(table.hash_of(last)));
  if (elements == 0) return append_list({}, out.extra_keys);
  const std::size_t first = out.extra_keys.bytes.size();
  extra_key_writer(out.extra_keys.bytes).list(elements);
  out.extra_keys.bytes.insert(out.extra_keys.bytes.end(), bytes.begin(), bytes.end());
  out.extra_keys.blocks.push_back(range_from(first, out.extra_keys.bytes.size()));
}

// ---------------------------------------------------------------------------------------------- clears

void block_resizer::clear_places(const event_batch& batch) noexcept {
  for (std::size_t place = 0; place < places_.size(); ++place) {
    const bool is_meant = clear_ == clear_scope::all || places_[place].medium == name_of(block_medium::gpu);
    if (places_[place].rank == batch.dp_rank && is_meant) clear(static_cast<part_place>(place));
  }
}

void block_resizer::clear(part_place place) noexcept {
  for (auto& [name, table] : tables_) table.clear(place);
  std::erase_if(repeats_, [place](const auto& repeat) { return repeat.first.second == place; });
}

void block_resizer::clear_medium(std::string_view medium) noexcept {
  for (std::size_t place = 0; place < places_.size(); ++place) {
    if (medium.empty() || places_[place].medium == medium) clear(static_cast<part_place>(place));
  }
}

void block_resizer::clear() noexcept {
  sizes_.clear();
  tables_.clear();
  places_.clear();
  repeats_.clear();
}

// ---------------------------------------------------------------------------------------------- facts

bool block_resizer::set_size(const engine_event& event) {
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
    const bool is_meant = !event.group || each.group == event.group;
    if (is_meant && is_whole && cuts <= resize_rules::most_ratio) most = std::max(most, cuts);
  }
  return most;
}

bool block_resizer::is_part(std::uint64_t hash) const noexcept {
  return std::ranges::any_of(tables_, [hash](const auto& entry) { return entry.second.find(hash) != no_part; });
}

block_resizer::table_entry* block_resizer::table_of(std::string_view lora_name, std::uint32_t part_tokens) {
  const std::pair key(std::string(lora_name), part_tokens);
  const auto found = tables_.find(key);
  if (found != tables_.end()) return &*found;
  if (tables_.size() == most_tables) return nullptr;
  return &*tables_.try_emplace(key, part_tokens, rules_.block_tokens / part_tokens, budget_).first;
}

std::optional<part_place> block_resizer::place_of(const event_batch& batch, const engine_event& event) {
  place_name name{.rank = batch.dp_rank, .group = event.group, .medium = std::string(batch.medium_of(event))};
  const auto found = std::ranges::find(places_, name);
  if (found != places_.end()) return static_cast<part_place>(found - places_.begin());
  if (places_.size() == part_table::most_places) return std::nullopt;
  places_.push_back(std::move(name));
  return static_cast<part_place>(places_.size() - 1);
}

}  // namespace cenote::indexer
