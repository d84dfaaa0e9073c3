#include "services/manager/writes/start_write.hpp"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "core/random_number.hpp"
#include "services/manager/writes/served_blocks.hpp"
#include "services/manager/writes/storage_choice.hpp"

namespace cenote::manager {

namespace {

constexpr std::int64_t most_bytes = std::int64_t{1} << 60U;  ///< of a request, so that no sum wraps

void add_replica(std::vector<std::pair<std::uint8_t, std::uint64_t>>& replicas, std::uint8_t storage,
                 std::uint64_t specs) {
  for (auto& [number, present] : replicas) {
    if (number != storage) continue;
    present |= specs;
    return;
  }
  replicas.emplace_back(storage, specs);
}

}  // namespace

rpc_outcome<std::vector<bool>> mask_of(const position_mask& mask, std::size_t count, std::string_view field) {
  if (mask.values) {
    if (mask.values->size() == count) return *mask.values;
    return refuse(answer_code::invalid_argument, std::string(field) + " has " + std::to_string(mask.values->size()) +
                                                     " values; right would be " + std::to_string(count));
  }
  const std::int64_t offset = mask.offset.value_or(0);
  if (offset < 0 || static_cast<std::uint64_t>(offset) > count) {
    return refuse(answer_code::invalid_argument, std::string(field) + ".offset is " + std::to_string(offset) +
                                                     "; right would be 0 to " + std::to_string(count));
  }
  std::vector<bool> values(count, false);
  std::fill_n(values.begin(), offset, true);
  return values;
}

rpc_outcome<> start_write::read_groups() {
  if (request_.groups.empty()) return {};
  if (request_.groups.size() != request_.keys.size()) {
    return refuse(answer_code::invalid_argument, "location_spec_group_names has " +
                                                     std::to_string(request_.groups.size()) +
                                                     " names; right would be none, or one for each of the " +
                                                     std::to_string(request_.keys.size()) + " keys");
  }
  asked_specs_.reserve(request_.keys.size());
  for (const std::string& name : request_.groups) {
    const auto& groups = instance_->terms->groups;
    const auto found = std::ranges::find(groups, name, &spec_group_terms::name);
    if (found == groups.end()) {
      return refuse(answer_code::invalid_argument, "location_spec_group_names has '" + name + "', which instance " +
                                                       request_.instance + " does not have");
    }
    asked_specs_.push_back(found->specs);
  }
  return {};
}

rpc_outcome<> start_write::begin(write_parts& parts, write_round& round) {
  instance_ = parts.state.instance_called(request_.instance);
  if (instance_ == nullptr) {
    return refuse(answer_code::instance_not_exist, "there is no instance " + request_.instance);
  }
  number_ = instance_->terms->number;
  if (request_.timeout_s < 0 || request_.replicas < 0) {
    return refuse(answer_code::invalid_argument,
                  "write_timeout_seconds and min_replica_count are 0 or more; 0 is the default");
  }
  if (auto read = read_groups(); !read) return read;
  auto storages = writable_storages(parts.state, *instance_->group);
  if (!storages) return std::unexpected(std::move(storages.error()));
  storages_ = std::move(*storages);
  if (!parts.sessions.has_room(request_.keys.size())) {
    return refuse(answer_code::reach_max_entity_capacity, "as many sessions are open as there may be");
  }
  auto timeout = request_.timeout_s == 0 ? parts.settings.write_timeout : std::chrono::seconds(request_.timeout_s);
  timeout = std::min(timeout, parts.settings.max_write_timeout);
  extent_ = std::make_unique<extent_state>();
  extent_->deadline = round.now + timeout;
  grant_.deadline_ms = unix_ms() + std::chrono::milliseconds(timeout).count();
  grant_.granted_at = unix_seconds();
  granted_.masked.reserve(request_.keys.size());
  return open_extent(parts);
}

std::uint64_t start_write::missing_specs(const write_parts& parts, std::uint32_t record, std::uint64_t specs) {
  std::uint64_t present = 0;
  bool is_mine = false;                                          // the request has the key twice
  std::vector<std::pair<std::uint8_t, std::uint64_t>> replicas;  // specs by storage
  instance_->index->visit_locations(record, [&](const location& place) {
    if (place.state == location_state::deleting) return;
    is_mine = is_mine || place.extent == extent_->table;
    const std::uint8_t number = instance_->index->extents().get(place.extent).storage;
    const bool is_undecided = number == undecided_storage;
    const storage_state* const storage = is_undecided ? nullptr : parts.state.storages[number].get();
    if (is_mine || (!is_undecided && (storage == nullptr || !storage->is_readable()))) return;
    const std::uint64_t mask = instance_->index->sets().mask(place.set);
    present |= mask;
    if (request_.replicas > 1) add_replica(replicas, number, mask);
  });
  if (is_mine) return 0;
  if (request_.replicas <= 1) return specs & ~present;
  const auto complete =
      std::ranges::count_if(replicas, [&](const auto& replica) { return (specs & ~replica.second) == 0; });
  if (complete >= request_.replicas) return 0;
  for (const auto& [number, mask] : replicas) std::erase(storages_, number);  // a further one goes elsewhere
  return specs;
}

rpc_outcome<std::uint32_t> start_write::record_of(const cache_key& key) {
  const std::uint32_t record = instance_->index->find(key);
  if (record != no_record) return record;
  const std::uint64_t most = instance_->group->terms->max_keys;
  const std::size_t count = instance_->index->count();
  if (most == 0 || count < most) return instance_->index->add(key, previous_record_);
  const auto rest = static_cast<std::int64_t>(request_.keys.size() - next_);
  instance_->is_touched = true;
  instance_->wanted_keys = std::max(instance_->wanted_keys, rest + static_cast<std::int64_t>(grant_.keys.size()));
  return refuse(answer_code::reach_max_entity_capacity,
                "instance " + request_.instance + " has " + std::to_string(count) +
                    " keys, and max_key_count of group " + instance_->group->terms->name + " is " +
                    std::to_string(most));
}

void start_write::note_parent() {
  if (is_previous_granted_) return;
  parent_link link{.position = static_cast<std::uint32_t>(grant_.keys.size())};
  if (next_ > 0) {
    link.has_parent = true;
    link.parent = request_.keys[next_ - 1];
  }
  grant_.parents.push_back(link);
}

rpc_outcome<> start_write::open_extent(write_parts& parts) {
  extent_->name = {.instance = number_, .extent = parts.state.new_extent_number()};
  const auto table = instance_->index->extents().add({.number = extent_->name.extent, .storage = undecided_storage});
  if (!table) return refuse(answer_code::reach_max_entity_capacity, "there are as many extents as there may be");
  extent_->table = *table;
  is_extent_open_ = true;
  return {};
}

rpc_outcome<> start_write::mark_block(std::uint32_t record, std::uint64_t specs) {
  const auto set = instance_->index->sets().number_of(specs);
  if (!set) {
    return refuse(answer_code::reach_max_entity_capacity,
                  "instance " + request_.instance + " has as many different sets of specs as there may be");
  }
  if (is_deleted_alone(*instance_, record)) --instance_->deleting_keys;
  instance_->index->add_location(record, {.extent = extent_->table,
                                          .position = static_cast<std::uint16_t>(extent_->records.size()),
                                          .state = location_state::writing,
                                          .set = *set});
  return {};
}

rpc_outcome<> start_write::grant_key(const write_parts& parts, const cache_key& key, std::uint64_t specs) {
  if (specs == 0) {
    granted_.masked.push_back(true);
    return {};
  }
  const auto record = record_of(key);
  if (!record) return std::unexpected(record.error());
  const std::uint64_t missing = missing_specs(parts, *record, specs);
  granted_.masked.push_back(missing == 0);
  if (missing != 0) {
    if (auto marked = mark_block(*record, missing); !marked) {
      bool is_empty = true;
      instance_->index->visit_locations(*record, [&](const location& /*any*/) { is_empty = false; });
      if (is_empty) instance_->index->drop(*record);
      return marked;
    }
    note_parent();
    extent_->records.push_back(*record);
    grant_.keys.push_back(key);
    granted_.specs.push_back(missing);
    bytes_ += instance_->bytes_of(missing);
    if (bytes_ > most_bytes) {
      return refuse(answer_code::reach_max_entity_capacity,
                    "the blocks of this request have more bytes than any quota");
    }
  }
  is_previous_granted_ = missing != 0;
  previous_record_ = *record;
  return {};
}

rpc_outcome<> start_write::grant_keys(write_parts& parts, write_round& round) {
  const std::uint64_t all = instance_->terms->all_specs;
  constexpr std::size_t prefetch_keys = 64;
  for (; next_ < request_.keys.size() && round.keys > 0; ++next_, --round.keys) {
    if (next_ % prefetch_keys == 0) {
      instance_->index->prefetch(
          std::span(request_.keys).subspan(next_, std::min(prefetch_keys, request_.keys.size() - next_)));
    }
    const std::uint64_t specs = asked_specs_.empty() ? all : asked_specs_[next_];
    if (auto granted = grant_key(parts, request_.keys[next_], specs); !granted) return granted;
  }
  return {};
}

rpc_outcome<> start_write::end(write_parts& parts) {
  granted_.instance = instance_->terms;
  if (grant_.keys.empty()) {
    drop_extent();
    granted_.session = session_name::empty(number_).text();
    return {};
  }
  const std::uint64_t nonce = random_number();
  std::erase_if(storages_, [&](std::uint8_t number) {  // some rounds may have gone by
    const storage_state* const storage = parts.state.storages[number].get();
    return storage == nullptr || !storage->is_writable();
  });
  if (storages_.empty()) {
    return refuse(answer_code::io_error, "no further storage is usable, or none that lacks a replica");
  }
  const auto storage = reserve_bytes(parts.state, *instance_, storages_, bytes_);
  if (!storage) return std::unexpected(storage.error());
  instance_->index->extents().set_storage(extent_->table, *storage);
  extent_->storage = *storage;
  extent_->nonce = nonce;
  extent_->granted_at = grant_.granted_at;
  extent_->states = state_mask(grant_.keys.size(), location_state::writing);
  extent_->present = static_cast<std::uint32_t>(grant_.keys.size());
  grant_.name = extent_->name;
  grant_.nonce = nonce;
  grant_.storage = *storage;
  grant_.specs = granted_.specs;
  if (std::ranges::all_of(grant_.specs, [&](std::uint64_t specs) { return specs == grant_.specs.front(); })) {
    grant_.specs.resize(1);
  }
  granted_.extent = extent_->name.extent;
  granted_.storage = *storage;
  granted_.session = session_name{.extent = granted_.extent, .nonce = nonce}.text();
  extent_->specs = grant_.specs;
  parts.changes.grant(*extent_, grant_);
  parts.changes.note(round_work::start);
  granted_.keys = std::move(grant_.keys);
  parts.sessions.open(granted_.extent, {.instance = number_, .table = extent_->table, .blocks = extent_->present},
                      extent_->deadline);
  auto& extents = instance_->extents;
  if (extents.size() <= extent_->table) extents.resize(extent_->table + 1);
  extents[extent_->table] = std::move(extent_);
  return {};
}

void start_write::refuse_later(rpc_refusal reason) {
  refusal_ = std::move(reason);
  phase_ = start_phase::undo;
}

void start_write::drop_extent() {
  if (extent_ != nullptr && is_extent_open_) instance_->index->extents().erase(extent_->table);
  extent_.reset();
}

void start_write::undo(write_round& round) {
  if (extent_ == nullptr) return;
  for (; !extent_->records.empty() && round.keys > 0; --round.keys) {
    const std::uint32_t record = extent_->records.back();
    extent_->records.pop_back();
    const auto erased = instance_->index->erase_location(record, extent_->table, location_state::writing);
    if (erased.is_key_gone) {
      forget_record(*instance_, record);
    } else if (is_deleted_alone(*instance_, record)) {
      ++instance_->deleting_keys;
    }
  }
  if (extent_->records.empty()) drop_extent();
}

bool start_write::advance(write_parts& parts, write_round& round) {
  if (phase_ == start_phase::begin) {
    const auto begun = begin(parts, round);
    phase_ = start_phase::grant;
    if (!begun) refuse_later(begun.error());
  } else {
    instance_ = parts.state.instance(number_);
    if (instance_ != nullptr && next_ > 0) previous_record_ = instance_->index->find(request_.keys[next_ - 1]);
    if (instance_ == nullptr) {  // gone meanwhile, and all that was marked with it
      extent_.reset();
      refuse_later({.code = answer_code::instance_not_exist, .message = "there is no instance " + request_.instance});
    }
  }
  if (phase_ == start_phase::grant && instance_->is_departing) {
    refuse_later({.code = answer_code::instance_not_exist, .message = "there is no instance " + request_.instance});
  }
  if (phase_ == start_phase::grant) {
    if (const auto granted = grant_keys(parts, round); !granted) {
      refuse_later(granted.error());
    } else if (next_ == request_.keys.size()) {
      const auto ended = end(parts);
      phase_ = start_phase::end;
      if (!ended) refuse_later(ended.error());
    }
  }
  if (phase_ == start_phase::undo) {
    undo(round);
    if (extent_ == nullptr) phase_ = start_phase::end;
  }
  return phase_ == start_phase::end;
}

void start_write::answer(const result<>& committed) {
  if (refusal_.code != answer_code::internal_error || !refusal_.message.empty()) {
    receive_(std::unexpected(std::move(refusal_)));
  } else if (!committed) {
    receive_(refuse_unwritten(committed.error()));
  } else {
    receive_(std::move(granted_));
  }
}

}  // namespace cenote::manager
