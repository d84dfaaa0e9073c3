#include "services/manager/service/registry_command.hpp"

#include "services/manager/writes/departures.hpp"

namespace cenote::manager {

bool registry_command::drop_locations(write_parts& parts, write_round& round, std::uint8_t storage) {
  if (!is_dropping_) {
    is_dropping_ = true;
    closing_ = storage;
    parts.state.storages[storage]->is_closing = true;
    for (const auto& [number, instance] : parts.state.instances) instances_.push_back(number);
  } else if (instances_.empty()) {
    return true;  // the round that dropped the last one is over
  }
  while (!instances_.empty()) {
    instance_state* const instance = parts.state.instance(instances_.back());
    if (!walk_) walk_.emplace(extent_walk::action::forget, extent_walk::filter{.storage = storage});
    if (instance != nullptr && !walk_->advance(parts, *instance, round)) return false;
    walk_.reset();
    instances_.pop_back();
  }
  return false;
}

void registry_command::apply(write_parts& parts, registry_change change) {
  for (row_change& row : change.rows) {
    parts.changes.add_row({.name = static_cast<char>(row_kind::registry) + row.key, .value = std::move(row.value)});
  }
  if (change.removed_instance) {
    const instance_state* const instance = parts.state.instance(*change.removed_instance);
    if (instance != nullptr) {
      const auto entry = parts.state.settings.find_instance(instance->terms->id);
      if (entry != nullptr) parts.changes.add_row(departure_row(*entry));
    }
  }
  if (!change.rows.empty()) {
    const std::uint64_t workers = parts.state.worker_changes;
    adopt_registry(parts.state, change.next, parts.make_worker);
    has_new_worker_ = parts.state.worker_changes != workers;
    parts.has_new_registry = true;
  }
  outcome_ = std::move(change.note);
}

bool registry_command::advance(write_parts& parts, write_round& round) {
  const change_basis basis{.settings = parts.state.settings, .use = [&](std::string_view name) {
                             const storage_state* const storage = parts.state.storage_called(name);
                             return storage != nullptr && storage->bytes.used > 0 ? storage_use::has_locations
                                                                                  : storage_use::unused;
                           }};
  auto change = edit_(basis);
  if (!change) {
    if (closing_) parts.state.storages[*closing_]->is_closing = false;
    outcome_ = std::unexpected(std::move(change.error()));
    return true;
  }
  if (change->dropped_storage && !drop_locations(parts, round, *change->dropped_storage)) return false;
  apply(parts, std::move(*change));
  return true;
}

void registry_command::answer(const result<>& committed) {
  if (!outcome_) {
    receive_(std::unexpected(std::move(outcome_.error())));
  } else if (!committed) {
    receive_(refuse_unwritten(committed.error()));
  } else {
    receive_(std::move(outcome_));
  }
}

}  // namespace cenote::manager
