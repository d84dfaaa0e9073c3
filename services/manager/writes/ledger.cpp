#include "services/manager/writes/ledger.hpp"

#include <bit>
#include <optional>
#include <utility>

#include "services/manager/writes/served_blocks.hpp"
#include "services/manager/writes/sessions.hpp"

namespace cenote::manager {

void ledger::grant(extent_state& extent, const extent_grant& terms) {
  const std::string row = row_name(static_cast<char>(row_kind::extent), extent.name);
  batch_.push_back({.name = row, .value = grant_row(row, terms)});
}

ledger::dirty_extent& ledger::dirty(instance_state& instance, extent_state& extent) {
  if (!dirty_.empty() && dirty_.back().extent == &extent) return dirty_.back();
  const auto [place, is_new] = places_.try_emplace(&extent, dirty_.size());
  if (is_new) dirty_.push_back({.instance = &instance, .extent = &extent});
  return dirty_[place->second];
}

void ledger::set_state(instance_state& instance, extent_state& extent, std::uint32_t position, location_state next) {
  if (extent.states[position] == next) return;
  dirty(instance, extent).changes.push_back(position);
  extent.states.set(position, next);
  if (next == location_state::none) --extent.present;
}

void ledger::close(instance_state& instance, extent_state& extent, std::uint32_t wrote_at, std::uint64_t finish_mark) {
  (void)dirty(instance, extent);
  extent.is_open = false;
  extent.wrote_at = wrote_at;
  extent.finish_mark = finish_mark;
  extent.specs = {};
}

void ledger::erase_rows(const extent_name& name) {
  for (const row_kind kind : {row_kind::extent, row_kind::mask}) {
    batch_.push_back({.name = row_name(static_cast<char>(kind), name)});
  }
}

void ledger::write_end(const instance_state& instance, const extent_state& extent, round_time now) {
  erase_rows(extent.name);
  const std::chrono::seconds rest = write_sessions::memory_rest(extent.wrote_at);
  if (instance.is_departing || extent.finish_mark == 0 || rest == std::chrono::seconds()) return;
  const std::string row = row_name(static_cast<char>(row_kind::mask), extent.name);
  batch_.push_back({.name = row, .value = finish_row(row, finish_of(extent))});
  erase_rows_later(extent.name, now + rest);
}

void ledger::write_states(const instance_state& instance, const extent_state& extent, round_time now) {
  if (extent.present == 0 && !extent.is_open) return write_end(instance, extent, now);
  const std::string row = row_name(static_cast<char>(row_kind::mask), extent.name);
  const extent_states states{.wrote_at = extent.wrote_at,
                             .finish_mark = extent.finish_mark,
                             .states = extent.states,
                             .checksums = instance.index->extents().checksums(extent.table, extent.states.size())};
  batch_.push_back({.name = row, .value = states_row(row, states)});
}

result<> ledger::write_batch() {
  const std::uint32_t works = std::exchange(works_, 0);
  const auto pass_each = [&](auto point_of) -> result<> {
    if (faults_ == nullptr) return {};
    for (std::uint32_t rest = works; rest != 0; rest &= rest - 1) {
      const auto work = static_cast<round_work>(std::countr_zero(rest));
      if (auto passed = pass(faults_, point_of(work)); !passed) return passed;
    }
    return {};
  };
  if (auto passed = pass_each(batch_point); !passed) return passed;
  if (auto written = rows_.write(batch_); !written) return written;
  return pass_each(written_point);
}

result<> ledger::commit(round_time now) {
  for (; !row_ends_.empty() && row_ends_.begin()->first <= now; row_ends_.erase(row_ends_.begin())) {
    erase_rows(row_ends_.begin()->second);
  }
  for (const dirty_extent& entry : dirty_) write_states(*entry.instance, *entry.extent, now);
  if (!batch_.empty()) {
    for (const journal_row& row : batch_) bytes_ += row.bytes();
    const auto written = write_batch();
    batch_.clear();
    if (!written) {
      dirty_.clear();
      places_.clear();
      return written;
    }
  }
  for (dirty_extent& entry : dirty_) publish(entry, now);
  dirty_.clear();
  places_.clear();
  works_ = 0;
  return {};
}

void ledger::serve_blocks(const dirty_extent& entry, round_time now) {
  const extent_state& extent = *entry.extent;
  const std::uint32_t tenths = tenths_of(now);
  std::optional<pool_entrance> entrance;
  for (const std::uint32_t position : entry.changes) {
    if (extent.states[position] != location_state::serving) continue;
    const std::uint32_t record = extent.records[position];
    if (entry.instance->index->serve(record, extent.table, tenths) != change_outcome::changed) continue;
    if (!entrance) entrance.emplace(*entry.instance, extent.storage);
    entrance->add(record, tenths);
  }
}

bool ledger::end_block(instance_state& instance, const extent_state& extent, std::uint32_t position) {
  const std::uint32_t record = extent.records[position];
  const location_state next = extent.states[position];
  location place;  // as readers see it
  instance.index->visit_locations(record, [&](const location& each) {
    if (each.extent == extent.table) place = each;
  });
  if (next == place.state) return false;
  if (next == location_state::deleting) {
    give_up_block(instance, extent, record, place);
  } else {
    forget_block(instance, extent, record, place);
  }
  return true;
}

void ledger::give_up_block(instance_state& instance, const extent_state& extent, std::uint32_t record,
                           const location& place) {
  (void)instance.index->change_state(record, extent.table, place.state, location_state::deleting);
  if (!is_served(instance, record, extent.storage)) leave_pool(instance, extent.storage, record);
  if (is_deleted_alone(instance, record)) ++instance.deleting_keys;
  charge(state_, instance, extent.storage, 0, instance.bytes_of(instance.index->sets().mask(place.set)));
}

void ledger::forget_block(instance_state& instance, const extent_state& extent, std::uint32_t record, location place) {
  // A record that leaves its pool is there still: its parent is known.
  const std::int64_t bytes = instance.bytes_of(instance.index->sets().mask(place.set));
  if (place.state != location_state::deleting) {
    give_up_block(instance, extent, record, place);
    place.state = location_state::deleting;
  }
  const bool was_deleted = is_deleted_alone(instance, record);
  const bool is_gone = instance.index->erase_location(record, extent.table, place.state).is_key_gone;
  if (is_gone) forget_record(instance, record);
  if (is_gone && was_deleted) --instance.deleting_keys;
  charge(state_, instance, extent.storage, -bytes, -bytes);
}

void ledger::publish(dirty_extent& entry, round_time now) {
  instance_state& instance = *entry.instance;
  extent_state& extent = *entry.extent;
  if (extent.wrote_at != 0) instance.index->extents().set_wrote_at(extent.table, extent.wrote_at);
  due_removal removal{.due = now + std::chrono::milliseconds(instance.group->terms->delay_before_delete_ms),
                      .instance = extent.name.instance,
                      .extent = extent.name.extent,
                      .table = extent.table};
  serve_blocks(entry, now);
  for (const std::uint32_t position : entry.changes) {
    const location_state next = extent.states[position];
    if (next != location_state::deleting && next != location_state::none) continue;
    if (!end_block(instance, extent, position) || next == location_state::none) continue;
    if (removal.count != 0 && position == removal.first + removal.count) {
      ++removal.count;
      continue;
    }
    if (removal.count != 0) removals_(removal);
    removal.first = position;
    removal.count = 1;
  }
  if (removal.count != 0) removals_(removal);
  if (extent.present != 0 || extent.is_open) return;
  const std::uint32_t table = extent.table;
  instance.index->extents().erase(table);
  instance.extents[table].reset();
}

}  // namespace cenote::manager
