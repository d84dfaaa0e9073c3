#include "services/manager/writes/recovery.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "services/manager/store/row_seal.hpp"
#include "services/manager/writes/departures.hpp"
#include "services/manager/writes/served_blocks.hpp"

namespace cenote::manager {

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t prefetch_keys = 64;
constexpr auto least_rest = 10s;  ///< that a session has after a restart

bool has_nothing(const state_mask& states) {
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i] != location_state::none) return false;
  }
  return true;
}

/// One recovery.
class journal_reader {
 public:
  journal_reader(journal& rows, recovery_parts& parts, round_time now)
      : rows_(rows), parts_(parts), state_(parts.state), now_(now) {}

  result<> read_registry();
  result<> read_states();
  result<> read_extents();
  void fill_pools();
  [[nodiscard]] const recovery_counts& counts() const noexcept { return counts_; }

 private:
  result<> read_kind(row_kind kind, const row_visitor& visit);
  /// The states of an extent; nothing: their row is damaged.
  using read_mask = std::optional<extent_states>;

  void read_extent(std::string_view row, std::string_view value);
  /// `mask`: null: there is no row of states.
  void lose_extent(const extent_name& name, const read_mask* mask);
  [[nodiscard]] bool is_sound(const instance_state& instance, const extent_grant& grant, const read_mask* mask) const;
  void add_extent(instance_state& instance, const extent_grant& grant, const extent_states* states);
  void add_block(instance_state& instance, extent_state& extent, const extent_grant& grant, std::uint32_t position,
                 std::uint32_t& previous);
  void open_session(extent_state& extent, const extent_grant& grant);
  void remember_session(const extent_name& name, const extent_finish& finish);
  void queue_removals(const instance_state& instance, const extent_state& extent);

  journal& rows_;
  recovery_parts& parts_;
  manager_state& state_;
  round_time now_;
  recovery_counts counts_;
  std::map<extent_name, read_mask> states_;  ///< of extents that are not read yet
  bool has_deleted_ = false;                 ///< some block is being deleted
  // Of the last block, which most are like.
  const instance_state* last_instance_ = nullptr;
  std::uint64_t last_specs_ = 0;
  std::optional<std::uint16_t> last_set_;
  std::int64_t last_bytes_ = 0;
};

// The meaning of a newer manager's row is not known: nothing is served, and nothing deleted, beside it.
result<> journal_reader::read_kind(row_kind kind, const row_visitor& visit) {
  std::uint64_t newer = 0;
  auto read = rows_.read(kind, [&](std::string_view name, std::string_view value) {
    const bool is_registry = kind == row_kind::registry;
    if (is_newer_row(is_registry ? name.substr(1) : name, value)) {
      ++newer;
    } else {
      visit(name, value);
    }
  });
  if (!read || newer == 0) return read;
  return fail(error_code::layout_mismatch, std::to_string(newer) +
                                               " rows are of a newer version; start the manager that wrote them, or "
                                               "begin with another manager.state_dir or manager.id");
}

result<> journal_reader::read_registry() {
  std::vector<stored_row> stored;
  std::vector<stored_row> departed;
  const auto read = read_kind(row_kind::registry, [&](std::string_view name, std::string_view value) {
    stored_row row{.key = std::string(name.substr(1)), .value = std::string(value)};
    (is_departure(row.key) ? departed : stored).push_back(std::move(row));
  });
  if (!read) return read;
  loaded_registry loaded = manager_registry::load(stored, parts_.plugins);
  counts_.damaged_rows += loaded.damaged_rows;
  adopt_registry(state_, loaded.value, parts_.make_worker);
  for (const stored_row& row : departed) {
    if (!restore_departure(state_, row.key, row.value)) ++counts_.damaged_rows;
  }
  return {};
}

result<> journal_reader::read_states() {
  return read_kind(row_kind::mask, [&](std::string_view row, std::string_view value) {
    const auto name = extent_of_row(row);
    auto states = manager::read_states(row, value);
    if (const auto finish = read_finish(row, value); name && finish) {
      remember_session(*name, *finish);
      if (parts_.finishes) parts_.finishes(*name, now_ + write_sessions::memory_rest(finish->wrote_at));
      return;
    }
    if (!name || !states) ++counts_.damaged_rows;
    if (name) states_.emplace(*name, std::move(states));
  });
}

result<> journal_reader::read_extents() {
  const auto read =
      read_kind(row_kind::extent, [&](std::string_view row, std::string_view value) { read_extent(row, value); });
  if (!read) return read;
  for (const auto& [name, mask] : states_) {  // whose extents have no rows
    counts_.damaged_rows += mask ? 1 : 0;
    lose_extent(name, &mask);
  }
  return {};
}

// A name that is damaged itself may be one of this epoch.
void journal_reader::lose_extent(const extent_name& name, const read_mask* mask) {
  if (state_.instance(name.instance) == nullptr || name.extent >> 32U >= state_.epoch) return;
  ++counts_.lost_extents;
  if (!parts_.damages) return;
  const auto delay = std::chrono::milliseconds(state_.instance(name.instance)->group->terms->delay_before_delete_ms);
  lost_extent extent{.name = name, .may_be_open = mask == nullptr, .due = now_ + delay};
  if (mask != nullptr && *mask) {
    extent.blocks = static_cast<std::uint32_t>((*mask)->states.size());
    extent.may_be_open = (*mask)->wrote_at == 0;
  }
  parts_.damages(extent);
}

bool journal_reader::is_sound(const instance_state& instance, const extent_grant& grant, const read_mask* mask) const {
  const std::uint64_t foreign = ~instance.terms->all_specs;
  const bool is_foreign =
      std::ranges::any_of(grant.specs, [&](std::uint64_t specs) { return (specs & foreign) != 0 || specs == 0; });
  return !is_foreign && (mask == nullptr || !*mask || (*mask)->states.size() == grant.keys.size());
}

void journal_reader::read_extent(std::string_view row, std::string_view value) {
  const auto name = extent_of_row(row);
  const auto node = name ? states_.extract(*name) : decltype(states_)::node_type();
  const read_mask* const mask = node.empty() ? nullptr : &node.mapped();
  const auto grant = read_grant(row, value);
  if (!grant) {
    ++counts_.damaged_rows;
    if (name) lose_extent(*name, mask);
    return;
  }
  instance_state* const instance = state_.instance(grant->name.instance);
  if (instance == nullptr || grant->storage >= most_storages || state_.storages[grant->storage] == nullptr) {
    if (mask == nullptr || !*mask || !has_nothing((*mask)->states)) {
      ++counts_.orphaned_rows;
    } else if (parts_.finishes) {  // an open session whose storage was removed
      parts_.finishes(*name, now_);
    }
    return;
  }
  if (!is_sound(*instance, *grant, mask)) {
    ++counts_.damaged_rows;
    lose_extent(*name, mask);
    return;
  }
  if (mask == nullptr || *mask) return add_extent(*instance, *grant, mask == nullptr ? nullptr : &**mask);
  const extent_states given_up{.wrote_at = std::max(grant->granted_at, 1U),
                               .finish_mark = 0,
                               .states = state_mask(grant->keys.size(), location_state::deleting),
                               .checksums = {}};
  add_extent(*instance, *grant, &given_up);
}

void journal_reader::add_block(instance_state& instance, extent_state& extent, const extent_grant& grant,
                               std::uint32_t position, std::uint32_t& previous) {
  instance_index& index = *instance.index;
  const location_state state = extent.states[position];
  std::uint32_t record = index.find(grant.keys[position]);
  const bool is_new = record == no_record;
  if (state == location_state::none) {
    extent.records[position] = record;
    previous = record;
    return;
  }
  if (is_new) record = index.add(grant.keys[position], previous);
  const std::uint64_t specs = grant.specs_at(position);
  if (specs != last_specs_ || &instance != last_instance_) {
    last_set_ = index.sets().number_of(specs);
    last_specs_ = specs;
    last_instance_ = &instance;
    last_bytes_ = instance.bytes_of(specs);
  }
  const auto set = last_set_;
  const bool is_added =
      set &&
      index.add_location(
          record,
          {.extent = extent.table, .position = static_cast<std::uint16_t>(position), .state = state, .set = *set});
  if (!is_added) {  // a key that is there twice, in a row that no manager wrote
    ++counts_.damaged_rows;
    if (is_new) index.drop(record);
    extent.states.set(position, location_state::none);
    --extent.present;
    return;
  }
  extent.records[position] = record;
  previous = record;
  ++counts_.blocks;
  charge(state_, instance, extent.storage, last_bytes_, state == location_state::deleting ? last_bytes_ : 0);
  has_deleted_ = has_deleted_ || state == location_state::deleting;
}

void journal_reader::add_extent(instance_state& instance, const extent_grant& grant, const extent_states* states) {
  auto extent = std::make_unique<extent_state>();
  const std::size_t blocks = grant.keys.size();
  extent->name = grant.name;
  extent->nonce = grant.nonce;
  extent->storage = grant.storage;
  extent->granted_at = grant.granted_at;
  extent->wrote_at = states == nullptr ? 0 : states->wrote_at;
  extent->finish_mark = states == nullptr ? 0 : states->finish_mark;
  extent->states = states == nullptr ? state_mask(blocks, location_state::writing) : states->states;
  extent->is_open = extent->wrote_at == 0;
  extent->records.assign(blocks, no_record);
  for (std::uint32_t i = 0; i < blocks; ++i) {
    location_state state = extent->states[i];
    if (state == location_state::writing && !extent->is_open) {  // no session can finish it
      state = location_state::deleting;
      extent->states.set(i, state);
    }
    if (state != location_state::none) ++extent->present;
  }
  const auto table = instance.index->extents().add(
      {.number = grant.name.extent, .wrote_at = extent->wrote_at, .storage = grant.storage});
  if (!table) {
    ++counts_.damaged_rows;
    return;
  }
  extent->table = *table;
  if (extent->is_open) extent->specs = grant.specs;
  if (states != nullptr && !states->checksums.empty() && extent->present != 0) {
    instance.index->extents().set_checksums(*table, states->checksums);
  }
  std::uint32_t previous = no_record;
  auto link = grant.parents.begin();
  for (std::uint32_t i = 0; i < blocks; ++i) {
    if (i % prefetch_keys == 0) {
      instance.index->prefetch(std::span(grant.keys).subspan(i, std::min<std::size_t>(prefetch_keys, blocks - i)));
    }
    if (link != grant.parents.end() && link->position == i) {
      previous = link->has_parent ? instance.index->find(link->parent) : no_record;
      ++link;
    }
    add_block(instance, *extent, grant, i, previous);
  }
  ++counts_.extents;
  if (extent->is_open) {
    open_session(*extent, grant);
  } else if (extent->present == 0) {
    instance.index->extents().erase(*table);
    return;
  }
  remember_session(extent->name, finish_of(*extent));
  queue_removals(instance, *extent);
  if (instance.extents.size() <= *table) instance.extents.resize(*table + 1);
  instance.extents[*table] = std::move(extent);
}

void journal_reader::open_session(extent_state& extent, const extent_grant& grant) {
  const std::chrono::milliseconds unix_now(unix_ms());
  constexpr std::chrono::milliseconds longest = 24h;
  const auto deadline = std::clamp<std::chrono::milliseconds>(std::chrono::milliseconds(grant.deadline_ms),
                                                              unix_now + least_rest, unix_now + longest);
  extent.deadline = now_ + (deadline - unix_now);
  parts_.sessions.open(extent.name.extent,
                       {.instance = extent.name.instance,
                        .table = extent.table,
                        .blocks = static_cast<std::uint32_t>(extent.states.size())},
                       extent.deadline);
}

// A client that lost the answer finishes again, and may find another epoch.
void journal_reader::remember_session(const extent_name& name, const extent_finish& finish) {
  const std::chrono::seconds rest = write_sessions::memory_rest(finish.wrote_at);
  if (finish.finish_mark == 0 || rest == std::chrono::seconds()) return;
  parts_.sessions.remember(name.extent, {.instance = name.instance,
                                         .nonce = finish.nonce,
                                         .finish_mark = finish.finish_mark,
                                         .blocks = finish.blocks,
                                         .expiry = now_ + rest});
}

void journal_reader::queue_removals(const instance_state& instance, const extent_state& extent) {
  const auto delay = std::chrono::milliseconds(instance.group->terms->delay_before_delete_ms);
  const auto blocks = static_cast<std::uint32_t>(extent.states.size());
  for (std::uint32_t i = 0; i < blocks; ++i) {
    const std::uint32_t first = i;
    while (i < blocks && extent.states[i] == location_state::deleting) ++i;
    if (i == first) continue;
    parts_.removals({.due = now_ + delay,
                     .instance = extent.name.instance,
                     .extent = extent.name.extent,
                     .table = extent.table,
                     .first = first,
                     .count = i - first});
  }
}

// The extents in the order of their writing, each from its last block to its first: no parent is older than its child.
void journal_reader::fill_pools() {
  const std::uint32_t tenths = tenths_of(now_);
  const std::uint32_t seconds = unix_seconds();
  for (const auto& [number, instance] : state_.instances) {
    std::vector<const extent_state*> extents;
    for (const auto& extent : instance->extents) {
      if (extent != nullptr) extents.push_back(extent.get());
    }
    std::ranges::sort(extents, {},
                      [](const extent_state* extent) { return std::pair(extent->wrote_at, extent->name); });
    for (const extent_state* const extent : extents) {
      const std::uint32_t age = seconds > extent->wrote_at ? seconds - extent->wrote_at : 0;
      const std::uint32_t then = age < tenths / 10 ? tenths - age * 10 : 0;
      std::optional<pool_entrance> entrance;
      for (std::size_t i = extent->states.size(); i-- > 0;) {
        if (extent->states[i] != location_state::serving) continue;
        instance->index->note_use(extent->records[i], then);
        if (!entrance) entrance.emplace(*instance, extent->storage);
        entrance->add(extent->records[i], then);
      }
    }
    if (!has_deleted_) continue;
    constexpr std::size_t all = ~std::size_t{0};
    (void)instance->index->scan(0, all, [&](std::uint32_t record) {
      if (is_deleted_alone(*instance, record)) ++instance->deleting_keys;
    });
  }
}

}  // namespace

result<recovery_counts> recover(journal& rows, recovery_parts& parts, round_time now) {
  const auto epoch = rows.raise_epoch();
  if (!epoch) return std::unexpected(epoch.error());
  parts.state.epoch = *epoch;
  journal_reader reader(rows, parts, now);
  if (auto read = reader.read_registry(); !read) return std::unexpected(read.error());
  if (auto passed = pass(parts.faults, fault_point::recovery_registry); !passed) return std::unexpected(passed.error());
  if (auto read = reader.read_states(); !read) return std::unexpected(read.error());
  if (auto read = reader.read_extents(); !read) return std::unexpected(read.error());
  if (auto passed = pass(parts.faults, fault_point::recovery_extents); !passed) return std::unexpected(passed.error());
  reader.fill_pools();
  return reader.counts();
}

}  // namespace cenote::manager
