#include "services/indexer/placement/part_joiner.hpp"

#include <algorithm>
#include <array>
#include <new>

#include "services/indexer/placement/name_domains.hpp"

namespace cenote::indexer {

bool part_joiner::has(std::uint64_t hash) const noexcept {
  return std::ranges::any_of(tables_, [hash](const auto& entry) { return entry.second.find(hash) != no_part; });
}

// A part that many blocks share makes all of them complete, again and again if its publisher likes.
void part_joiner::begin(const event_batch& batch) noexcept {
  constexpr std::size_t least_work = std::size_t{1} << 20;
  constexpr std::size_t work_of_hash = 4;  // beside the tokens of its part
  const std::size_t part_tokens = tables_.empty() ? 0 : tables_.rbegin()->first;
  work_ = 0;
  most_work_ = least_work + 2 * batch.tokens.size() + (part_tokens + work_of_hash) * batch.hashes.size();
}

void part_joiner::store(const event_batch& batch, const engine_event& event, batch_rewrite& out) {
  const auto hashes = batch.hashes_of(event);
  part_table* const table = table_of(event.block_tokens);
  const auto adapter = adapter_of(batch.lora_name_of(event));
  const auto place = place_of(batch, event);
  if (table == nullptr || !adapter || !place) return out.refuse(placement_refusal::bounds, hashes.size());
  part_number predecessor = event.parent ? table->find(*event.parent) : no_part;
  const bool is_known = predecessor != no_part && table->adapter_of(predecessor) == *adapter;
  if (event.parent && !is_known) {
    out.is_parent_unknown = true;
    return out.refuse(placement_refusal::unknown_parent, hashes.size());
  }
  const auto tokens = batch.tokens_of(event);
  const extra_key_view lists = batch.extra_keys_of(event);
  std::optional<std::uint64_t> parent = event.parent;
  ends_.clear();
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (predecessor != no_part && table->is_last(predecessor)) predecessor = no_part;
    const obtained_part part = table->obtain({.hash = hashes[i],
                                              .adapter = *adapter,
                                              .parent = parent,
                                              .predecessor = predecessor,
                                              .tokens = tokens.subspan(i * event.block_tokens, event.block_tokens),
                                              .extra_keys = lists.list(i)});
    if (part.refusal) {
      constexpr std::array reasons{placement_refusal::conflict, placement_refusal::bounds, placement_refusal::memory};
      out.refuse(reasons[static_cast<std::size_t>(*part.refusal)], hashes.size() - i);
      break;
    }
    hold_part(*table, part.number, *place, out);
    // Its name is wanted for what follows, even where parts of the whole are missing.
    const bool is_name = part.is_new && table->is_last(part.number) && !table->is_complete(part.number, *place);
    if (is_name) ends_.push_back(part.number);
    predecessor = part.number;
    parent = hashes[i];
  }
  append_stored(batch, event, *table, *place, out);
}

void part_joiner::hold(const event_batch& batch, const engine_event& event, batch_rewrite& out) {
  if (tables_.empty()) return;
  const auto place = place_of(batch, event);
  if (!place) return out.refuse(placement_refusal::bounds, event.hashes.size);
  for (auto& [part_tokens, table] : tables_) {
    ends_.clear();
    for (const std::uint64_t hash : batch.hashes_of(event)) {
      if (const part_number part = table.find(hash); part != no_part) hold_part(table, part, *place, out);
    }
    append_stored(batch, event, table, *place, out);
  }
}

// A second store changes nothing on the GPU, but that the index may have lost the block; elsewhere it wants a second
// removal.
void part_joiner::hold_part(part_table& table, part_number part, part_place place, batch_rewrite& out) {
  if (work_ > most_work_) return out.refuse(placement_refusal::bounds, 1);
  const std::size_t earlier = ends_.size();
  ++work_;
  if (!table.is_held(part, place)) {
    work_ += table.hold(part, place, ends_);
  } else if (places_[place].medium != name_of(block_medium::gpu)) {
    repeat(key_of(table, part, place));
  } else if (table.is_complete(part, place)) {
    ends_.push_back(part);
  }
  work_ += (ends_.size() - earlier) * rules_.block_tokens;
}

// Where there is no room for it, the first removal ends it: less than the truth.
void part_joiner::repeat(const repeat_key& key) noexcept {
  constexpr std::size_t most_repeats = std::size_t{1} << 16;
  if (repeats_.size() == most_repeats) {
    std::erase_if(repeats_, [this](const auto& entry) {
      const auto& [hash, place, life] = entry.first;
      return places_[place].life != life;
    });
  }
  try {
    if (repeats_.size() < most_repeats || repeats_.contains(key)) ++repeats_[key];
  } catch (const std::bad_alloc&) {
  }
}

void part_joiner::release(const event_batch& batch, const engine_event& event, batch_rewrite& out) {
  for (auto& [part_tokens, table] : tables_) {
    for (std::size_t number = 0; number < places_.size(); ++number) {
      const place_facts& facts = places_[number];
      // An event that names no group is about all of them.
      const bool is_meant = facts.rank == batch.dp_rank && facts.medium == batch.medium_of(event) &&
                            (!event.group || facts.group == event.group);
      if (!is_meant) continue;
      ends_.clear();
      for (const std::uint64_t hash : batch.hashes_of(event)) {
        const part_number part = table.find(hash);
        if (part != no_part) release_part(table, part, static_cast<part_place>(number));
      }
      engine_event removed = event;
      removed.group = facts.group;
      append_removed(batch, removed, table, out);
    }
  }
}

void part_joiner::release_part(part_table& table, part_number part, part_place place) {
  const auto repeated = repeats_.find(key_of(table, part, place));
  if (repeated == repeats_.end()) return table.release(part, place, ends_);
  if (--repeated->second == 0) repeats_.erase(repeated);
}

// Blocks that are complete now, or have names, in as few events as they have chains; what is a name alone goes again.
void part_joiner::append_stored(const event_batch& batch, const engine_event& event, const part_table& table,
                                part_place place, batch_rewrite& out) {
  for (std::size_t next = 0; next < ends_.size();) {
    const part_adapter adapter = table.adapter_of(ends_[next]);
    engine_event added = out.begin_event(batch, event);
    added.block_tokens = rules_.block_tokens;
    added.engine_tokens = table.part_tokens();
    added.lora_name = out.append_text(adapter_names_[adapter]);
    const auto parent = table.parent_of(ends_[next]);
    added.parent = parent ? std::optional(joined_name(rules_, *parent)) : std::nullopt;
    const std::size_t first_hash = out.batch.hashes.size(), first_token = out.batch.tokens.size();
    const std::size_t first_list = out.batch.extra_keys.blocks.size();
    do {
      append_block(table, ends_[next], out);
      ++next;
    } while (next < ends_.size() && table.adapter_of(ends_[next]) == adapter &&
             table.parent_of(ends_[next]) == table.hash_of(ends_[next - 1]));
    added.hashes = range_from(first_hash, out.batch.hashes);
    added.tokens = range_from(first_token, out.batch.tokens);
    added.extra_keys = range_from(first_list, out.batch.extra_keys.blocks);
    out.batch.events.push_back(added);
    out.hand_on_many();
  }
  std::erase_if(ends_, [&](part_number last) { return table.is_complete(last, place); });
  append_removed(batch, event, table, out);
}

void part_joiner::append_removed(const event_batch& batch, const engine_event& event, const part_table& table,
                                 batch_rewrite& out) const {
  if (ends_.empty()) return;
  engine_event added = out.begin_event(batch, event);
  added.kind = event_kind::removed;
  added.parent = std::nullopt;
  const std::size_t first = out.batch.hashes.size();
  for (const part_number last : ends_) out.batch.hashes.push_back(joined_name(rules_, table.hash_of(last)));
  added.hashes = range_from(first, out.batch.hashes);
  out.batch.events.push_back(added);
}

// One list of extra keys for the block: what the parts' lists have, in order.
void part_joiner::append_block(const part_table& table, part_number last, batch_rewrite& out) const {
  const std::string_view lora_name = adapter_names_[table.adapter_of(last)];
  std::uint64_t count = 0;
  std::vector<std::byte> elements;
  table.visit_path(last, [&](std::span<const std::uint32_t> tokens, std::span<const std::byte> list) {
    out.batch.tokens.insert(out.batch.tokens.end(), tokens.begin(), tokens.end());
    const extra_key_elements some = elements_of(list, lora_name);
    if (some.count == 0) return;
    count += some.count;
    elements.insert(elements.end(), some.bytes.begin(), some.bytes.end());
  });
  out.batch.hashes.push_back(joined_name(rules_, table.hash_of(last)));
  std::vector<std::byte> list;
  if (count != 0) {
    extra_key_writer(list).list(count);
    list.insert(list.end(), elements.begin(), elements.end());
  }
  out.append_list(list);
}

void part_joiner::clear(const event_batch& batch) noexcept {
  for (std::size_t place = 0; place < places_.size(); ++place) {
    const bool is_meant = clear_ == clear_scope::all || places_[place].medium == name_of(block_medium::gpu);
    if (places_[place].rank == batch.dp_rank && is_meant) clear_place(static_cast<part_place>(place));
  }
}

void part_joiner::clear_medium(std::string_view medium) noexcept {
  for (std::size_t place = 0; place < places_.size(); ++place) {
    if (medium.empty() || places_[place].medium == medium) clear_place(static_cast<part_place>(place));
  }
}

void part_joiner::clear_place(part_place place) noexcept {
  ++places_[place].life;
  for (auto& [part_tokens, table] : tables_) table.clear(place);
}

void part_joiner::clear() noexcept {
  tables_.clear();
  adapter_names_.clear();
  adapters_.clear();
  places_.clear();
  repeats_.clear();
}

void part_joiner::trim() noexcept {
  for (auto& [part_tokens, table] : tables_) table.trim();
}

part_table* part_joiner::table_of(std::uint32_t part_tokens) {
  constexpr std::size_t most_sizes = 8;  // of a publisher
  const auto found = tables_.find(part_tokens);
  if (found != tables_.end()) return &found->second;
  if (tables_.size() == most_sizes) return nullptr;
  return &tables_.try_emplace(part_tokens, part_tokens, rules_.block_tokens / part_tokens, memory_).first->second;
}

std::optional<part_adapter> part_joiner::adapter_of(std::string_view lora_name) {
  const auto found = adapters_.find(lora_name);
  if (found != adapters_.end()) return found->second;
  if (adapters_.size() == name_domains::most_adapters) return std::nullopt;
  const auto number = static_cast<part_adapter>(adapter_names_.size());
  adapter_names_.push_back(adapters_.emplace(lora_name, number).first->first);
  return number;
}

std::optional<part_place> part_joiner::place_of(const event_batch& batch, const engine_event& event) {
  const std::string_view medium = batch.medium_of(event);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const place_facts& place = places_[i];
    if (place.rank == batch.dp_rank && place.group == event.group && place.medium == medium) {
      return static_cast<part_place>(i);
    }
  }
  if (places_.size() == part_table::most_places) return std::nullopt;
  places_.push_back({.rank = batch.dp_rank, .group = event.group, .medium = std::string(medium)});
  return static_cast<part_place>(places_.size() - 1);
}

}  // namespace cenote::indexer
