#include "tests/unit/services/manager/writes/write_world.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "services/manager/writes/departures.hpp"
#include "services/manager/writes/finish_write.hpp"
#include "services/manager/writes/served_blocks.hpp"
#include "services/manager/writes/start_write.hpp"

namespace cenote::manager::test {

namespace {

constexpr std::size_t all_records = ~std::size_t{0};
constexpr std::size_t most_rounds = 10'000;  ///< of one command; more would be without an end

template <class T>
std::function<void(rpc_outcome<T>)> receiver_of(std::optional<rpc_outcome<T>>& outcome) {
  return [&outcome](rpc_outcome<T> arrival) {
    BOOST_TEST(!outcome.has_value(), "a command has answered twice");
    outcome = std::move(arrival);
  };
}

template <class T>
answer_code code_of(const std::optional<rpc_outcome<T>>& outcome) {
  BOOST_TEST_REQUIRE(outcome.has_value());
  return *outcome ? answer_code::ok : outcome->error().code;
}

std::vector<cache_key> keys_of(const std::vector<std::uint64_t>& numbers) {
  std::vector<cache_key> keys(numbers.size());
  std::ranges::transform(numbers, keys.begin(), [](std::uint64_t low) { return cache_key{.low = low}; });
  return keys;
}

void visit_records(const instance_state& instance, const std::function<void(std::uint32_t)>& visit) {
  (void)instance.index->scan(0, all_records, visit);
}

}  // namespace

row_map switched_journal::rows() {
  row_map all;
  for (const row_kind kind : {row_kind::registry, row_kind::extent, row_kind::mask}) {
    (void)rows_.read(kind, [&](std::string_view name, std::string_view value) { all.emplace(name, value); });
  }
  return all;
}

std::string json_of(const group_values& group) {
  std::ostringstream out;
  out << R"({"name":")" << group.name << R"(","storage_candidates":[)" << group.candidates << R"(],"version":)"
      << group.version << R"(,"quota":{"capacity":)" << group.capacity << R"(,"quota_config":[)" << group.type_quotas
      << R"(]},"reclaim_paused":)" << (group.is_paused ? "true" : "false")
      << R"(,"cache_config":{"meta_indexer_config":{"max_key_count":)" << group.max_keys
      << R"(},"reclaim_strategy":{"trigger_strategy":{"used_percentage":)" << group.level
      << R"(},"reclaim_step_percentage":)" << group.step_percentage << R"(,"delay_before_delete_ms":)" << group.delay_ms
      << group.strategy << "}}}";
  return out.str();
}

std::string storage_json(std::string_view name, std::uint32_t blocks_per_file, std::uint64_t capacity) {
  std::ostringstream out;
  out << R"({"global_unique_name":")" << name << R"(","capacity":)" << capacity << R"(,"nfs":{"root_path":"/mnt/)"
      << name << R"(","key_count_per_file":)" << blocks_per_file << "}}";
  return out.str();
}

std::string threefs_json(std::string_view name) {
  std::ostringstream out;
  out << R"({"global_unique_name":")" << name << R"(","threefs":{"cluster_name":"c","mountpoint":"/mnt/)" << name
      << R"(","root_dir":"kv"}})";
  return out.str();
}

std::string instance_json(std::string_view id, std::string_view group) {
  std::ostringstream out;
  out << R"({"instance_group":")" << group << R"(","instance_id":")" << id
      << R"(","block_size":64,"model_deployment":{"model_name":"m","dtype":"bf16"},
         "location_spec_infos":[{"name":"a","size":512},{"name":"b","size":256}],
         "location_spec_groups":[{"name":"a","spec_names":["a"]},{"name":"b","spec_names":["b"]},
                                 {"name":"ab","spec_names":["a","b"]}]})";
  return out.str();
}

epoch_world::epoch_world(journal& rows, worker_factory make, const write_settings& settings)
    : removals(state, settings),
      changes(state, rows, [this](const due_removal& removal) { removals.add(removal); }),
      make_worker(std::move(make)),
      parts{.state = state,
            .changes = changes,
            .removals = removals,
            .sessions = sessions,
            .settings = settings,
            .make_worker = make_worker,
            .has_new_registry = has_new_registry} {}

write_world::write_world(const group_values& group, std::uint32_t blocks_per_file) {
  recover();
  BOOST_TEST_REQUIRE(add_storage(storage_json("s1", blocks_per_file)) == answer_code::ok);
  BOOST_TEST_REQUIRE(add_storage(storage_json("s2", blocks_per_file)) == answer_code::ok);
  BOOST_TEST_REQUIRE(change([&](const change_basis& basis) {
                       return basis.settings.create_group(test::group(json_of(group)));
                     }) == answer_code::ok);
  BOOST_TEST_REQUIRE(add_instance(instance_json("i")) == answer_code::ok);
}

write_world::~write_world() {
  for (const auto& command : live->queue.take_all()) command->answer({});
}

void write_world::recover() {
  live = std::make_unique<epoch_world>(
      rows,
      [log = log](const storage_terms& storage) {
        return std::make_unique<storage_worker>(
            std::make_unique<fake_storage>(storage.name, log),
            storage_worker_options{.probe_interval = std::chrono::hours(1), .probe_timeout = std::chrono::hours(1)},
            [log](removal_outcome outcome) { log->deliver(std::move(outcome)); });
      },
      settings);
  (void)log->await(0);  // of the epoch before
  recovery_parts parts{
      .state = live->state,
      .sessions = live->sessions,
      .removals =
          [this](const due_removal& removal) {
            live->queued.push_back(removal);
            live->removals.add(removal);
          },
      .make_worker = live->make_worker,
      .damages = [this](const lost_extent& extent) { live->removals.add(extent); },
      .finishes = [this](const extent_name& name, round_time due) { live->changes.erase_rows_later(name, due); }};
  BOOST_TEST_REQUIRE(manager::recover(rows, parts, now).has_value());
  probe();
}

void write_world::probe() {
  for (const auto& storage : live->state.storages) {
    if (storage == nullptr || storage->condition != storage_condition::unprobed) continue;
    storage->worker->await_probe(std::chrono::steady_clock::time_point::max());
    storage->condition = storage->worker->condition();
    storage->signal->show(storage->condition, {});
  }
}

std::unique_ptr<epoch_world> write_world::recovered_copy() {
  memory_journal copy;
  std::vector<journal_row> changes;
  for (auto& [name, value] : rows.rows()) changes.push_back({.name = name, .value = value});
  (void)copy.write(changes);
  // The copy of the journal is needed no longer than its rows are read.
  auto second = std::make_unique<epoch_world>(
      rows, [](const storage_terms&) { return std::unique_ptr<storage_worker>(); }, settings);
  recovery_parts parts{.state = second->state,
                       .sessions = second->sessions,
                       .removals = [&](const due_removal& removal) { second->queued.push_back(removal); },
                       .make_worker = second->make_worker};
  const auto counts = manager::recover(copy, parts, now);
  BOOST_TEST_REQUIRE(counts.has_value());
  BOOST_TEST((counts->damaged_rows == 0 && counts->orphaned_rows == 0));
  return second;
}

std::size_t write_world::batches() const {
  std::size_t sum = 0;
  for (const auto& storage : live->state.storages) sum += storage == nullptr ? 0 : storage->batches;
  return sum;
}

void write_world::depart(write_round& round) {
  manager_state& state = live->state;
  for (const auto& [number, instance] : state.instances) {
    if (!instance->is_departing) continue;
    auto& walk = live->departures.try_emplace(number, extent_walk::action::remove, extent_walk::filter{}).first->second;
    (void)walk.advance(live->parts, *instance, round);
  }
  std::erase_if(state.instances, [&](const auto& entry) {
    const instance_state& instance = *entry.second;
    if (!instance.is_departing || instance.index->extents().size() != 0 || instance.lost_extents != 0) return false;
    live->changes.add_row(departure_end(entry.first));
    live->departures.erase(entry.first);
    return true;
  });
}

bool write_world::run_round() {
  for (const removal_outcome& outcome : log->await(awaits ? batches() : 0))
    live->removals.complete(outcome, live->changes, now);
  write_round round{.now = now}, spare{.now = now};
  while (const auto extent = live->sessions.expired(now)) expire_session(live->parts, *extent);
  const auto complete = live->queue.advance(live->parts, round);
  depart(spare);
  has_evicted = reclaims && live->reclaim.run(live->changes, spare);
  evictions += static_cast<std::size_t>(has_evicted);
  live->removals.issue(live->changes, now);
  const auto committed = live->changes.commit(now);
  for (const auto& command : complete) command->answer(committed);
  return committed.has_value();
}

std::size_t write_world::run_commands() {
  std::size_t count = 0;
  for (; !live->queue.empty() && count < most_rounds; ++count) (void)run_round();
  BOOST_TEST_REQUIRE(live->queue.empty());
  return count;
}

void write_world::settle() {
  std::size_t quiet = 0;  // rounds in a row: what one writes down, the next one may follow
  for (std::size_t i = 0; i < most_rounds && quiet < 2; ++i) {
    const std::size_t writes = rows.writes;
    (void)run_round();
    const auto due = live->removals.next_due();
    const bool is_quiet = batches() == 0 && rows.writes == writes && !has_evicted && (!due || *due > now);
    quiet = is_quiet ? quiet + 1 : 0;
  }
  BOOST_TEST_REQUIRE(quiet == 2U, "there is always something to do");
}

bool write_world::has_registry_alone() {
  pass(write_sessions::memory);
  settle();
  return std::ranges::all_of(rows.rows(), [](const auto& row) { return row.first.front() == 'r'; });
}

rpc_outcome<start_grant> write_world::start(const std::vector<std::uint64_t>& keys, const start_request& extra) {
  start_request request = extra;
  if (request.instance.empty()) request.instance = "i";
  if (request.keys.empty()) request.keys = keys_of(keys);
  std::optional<rpc_outcome<start_grant>> outcome;
  post(std::make_unique<start_write>(std::move(request), receiver_of(outcome)));
  (void)run_commands();
  BOOST_TEST_REQUIRE(outcome.has_value());
  return std::move(*outcome);
}

answer_code write_world::finish(const start_grant& grant, const position_mask& success, const std::string& instance) {
  std::optional<rpc_outcome<>> outcome;
  post(std::make_unique<finish_write>(
      finish_request{.instance = instance, .session = grant.session, .success = success}, receiver_of(outcome)));
  (void)run_commands();
  return code_of(outcome);
}

answer_code write_world::finish_all(const start_grant& grant, const std::string& instance) {
  return finish(grant, first(static_cast<std::int64_t>(grant.specs.size())), instance);
}

start_grant write_world::write(const std::vector<std::uint64_t>& keys, const start_request& extra) {
  auto grant = start(keys, extra);
  BOOST_TEST_REQUIRE(grant.has_value(), (grant ? "" : grant.error().message));
  BOOST_TEST_REQUIRE(finish_all(*grant, extra.instance.empty() ? "i" : extra.instance) == answer_code::ok);
  return std::move(*grant);
}

answer_code write_world::remove(const std::vector<std::uint64_t>& keys, const position_mask& spared,
                                const std::string& instance) {
  std::optional<rpc_outcome<>> outcome;
  post(std::make_unique<remove_keys>(remove_request{.instance = instance, .keys = keys_of(keys), .spared = spared},
                                     receiver_of(outcome)));
  (void)run_commands();
  return code_of(outcome);
}

answer_code write_world::trim(const trim_request& request) {
  std::optional<rpc_outcome<>> outcome;
  post(std::make_unique<trim_instance>(request, receiver_of(outcome)));
  (void)run_commands();
  return code_of(outcome);
}

answer_code write_world::change(const registry_edit& edit) {
  std::optional<rpc_outcome<std::string>> outcome;
  post(std::make_unique<registry_command>(edit, receiver_of(outcome)));
  (void)run_commands();
  probe();
  return code_of(outcome);
}

answer_code write_world::update_group(group_values group) {
  return change([&](const change_basis& basis) {
    const std::int64_t version = basis.settings.find_group(group.name)->terms.version;
    group.version = version + 1;
    return basis.settings.update_group(test::group(json_of(group)), version);
  });
}

answer_code write_world::add_storage(const std::string& json) {
  return change([&](const change_basis& basis) { return basis.settings.add_storage(test::storage(json)); });
}

answer_code write_world::add_instance(const std::string& json) {
  return change([&](const change_basis& basis) { return basis.settings.register_instance(registration(json)); });
}

answer_code write_world::remove_instance(const std::string& id) {
  return change([&](const change_basis& basis) { return basis.settings.remove_instance("", id); });
}

instance_state& write_world::instance(std::string_view id) const {
  instance_state* const found = live->state.instance_called(id);
  BOOST_TEST_REQUIRE(found != nullptr, id);
  return *found;
}

std::string write_world::storage_name(std::uint8_t number) const {
  if (number == undecided_storage) return "undecided";
  const auto& storage = live->state.storages.at(number);
  return storage == nullptr ? "?" : storage->terms->name;
}

std::string write_world::text_of(std::uint64_t key, std::string_view id) const {
  std::vector<key_state> states;
  const std::vector<cache_key> keys{{.low = key}};
  instance(id).index->read_states(keys, states);
  std::vector<std::string> texts;
  for (const key_state& state : states) {
    texts.push_back(std::string(name_of(state.state)) + " " + storage_name(state.storage) + " " +
                    std::to_string(state.specs));
  }
  std::ranges::sort(texts);
  std::string text;
  for (const std::string& each : texts) text += (text.empty() ? "" : ", ") + each;
  return text;
}

std::vector<std::uint64_t> numbers(std::uint64_t begin, std::size_t count) {
  std::vector<std::uint64_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = begin + i;
  return all;
}

namespace {

void picture_account(std::ostream& out, const byte_account& account) {
  out << account.used << '-' << account.deleting;
}

void picture_instance(std::ostream& out, const instance_state& instance) {
  out << "instance " << instance.terms->number << " departs " << instance.is_departing << " bytes ";
  picture_account(out, instance.bytes);
  out << " deleting keys " << instance.deleting_keys << '\n';
  std::set<std::string> lines;
  visit_records(instance, [&](std::uint32_t record) {
    std::vector<key_state> states;
    const std::vector<cache_key> keys{instance.index->key_of(record)};
    instance.index->read_states(keys, states);
    for (const key_state& state : states) {
      std::ostringstream line;
      line << "key " << keys[0].low << ' ' << keys[0].high << ' ' << name_of(state.state) << " storage "
           << int{state.storage} << " extent " << state.extent << ' ' << state.position << " specs " << state.specs
           << " wrote " << state.wrote_at;
      lines.insert(line.str());
    }
  });
  for (const auto& extent : instance.extents) {
    if (extent == nullptr || !extent->is_open || extent->present == 0) continue;
    lines.insert("session " + std::to_string(extent->name.extent) + " " + std::to_string(extent->nonce));
  }
  for (const std::string& line : lines) out << line << '\n';
}

}  // namespace

std::string picture_of(const manager_state& state) {
  std::ostringstream out;
  std::map<std::uint64_t, const instance_state*> instances;
  for (const auto& [number, instance] : state.instances) instances.emplace(number, instance.get());
  for (const auto& [number, instance] : instances) picture_instance(out, *instance);
  for (const auto& [name, group] : state.groups) {
    out << "group " << name << " instances " << group->instances << ' ';
    picture_account(out, group->bytes);
    for (const auto& [type, account] : group->kinds) {
      if (account.used == 0) continue;
      out << ' ' << name_of(type) << ' ';
      picture_account(out, account);
    }
    out << '\n';
  }
  for (const auto& [name, number] : state.storage_numbers) {
    out << "storage " << name << ' ' << int{number} << ' ' << state.storages[number]->terms->is_enabled << ' ';
    picture_account(out, state.storages[number]->bytes);
    out << '\n';
  }
  return out.str();
}

namespace {

using accounts = std::map<const byte_account*, byte_account>;

void add_to(accounts& sums, const byte_account& account, std::int64_t bytes, bool is_deleting) {
  sums[&account].used += bytes;
  if (is_deleting) sums[&account].deleting += bytes;
}

void recount_record(const manager_state& state, const instance_state& instance, std::uint32_t record, accounts& sums) {
  std::size_t places = 0;
  instance.index->visit_locations(record, [&](const location& place) {
    ++places;
    const extent_state* const extent = instance.extent(place.extent);
    BOOST_TEST_REQUIRE(extent != nullptr);
    BOOST_TEST((extent->records.at(place.position) == record && extent->states[place.position] == place.state));
    const std::int64_t bytes = instance.bytes_of(instance.index->sets().mask(place.set));
    const bool is_deleting = place.state == location_state::deleting;
    const storage_state& storage = *state.storages[extent->storage];
    for (const byte_account* account : std::initializer_list<const byte_account*>{
             &instance.bytes, &instance.group->bytes, &instance.group->kinds[storage.terms->type], &storage.bytes}) {
      add_to(sums, *account, bytes, is_deleting);
    }
  });
  BOOST_TEST(places > 0U, "a key without a location");
}

void check_extents(const instance_state& instance) {
  std::size_t count = 0;
  for (const auto& extent : instance.extents) {
    if (extent == nullptr) continue;
    ++count;
    std::uint32_t present = 0;
    for (std::size_t i = 0; i < extent->states.size(); ++i) present += extent->states[i] != location_state::none;
    BOOST_TEST(extent->present == present);
    BOOST_TEST((extent->is_open || present > 0), "an extent that is over");
  }
  BOOST_TEST(instance.index->extents().size() == count);
}

void check_orders(const instance_state& instance) {
  std::map<std::uint32_t, std::size_t> children;
  visit_records(instance, [&](std::uint32_t record) {
    for (const auto& [storage, pool] : instance.pools) {
      BOOST_TEST(pool->has(record) == is_served(instance, record, storage));
    }
    const std::uint32_t parent = instance.index->parent_of(record);
    if (parent != no_record && has_pool(instance, record)) ++children[parent];
  });
  std::map<std::uint32_t, std::size_t> counted;
  for (std::uint32_t record = 0; record < instance.served_children.size(); ++record) {
    if (instance.served_children[record] != 0) counted.emplace(record, instance.served_children[record]);
  }
  BOOST_TEST((counted == children));
}

}  // namespace

void check_counts(const manager_state& state) {
  accounts sums;
  const auto expect = [&](const byte_account& account) { sums.try_emplace(&account); };
  for (const auto& [number, instance] : state.instances) {
    expect(instance->bytes);
    expect(instance->group->bytes);
    std::int64_t deleted_alone = 0;
    visit_records(*instance, [&](std::uint32_t record) {
      recount_record(state, *instance, record, sums);
      deleted_alone += static_cast<std::int64_t>(is_deleted_alone(*instance, record));
    });
    BOOST_TEST(instance->deleting_keys == deleted_alone);
    check_extents(*instance);
    check_orders(*instance);
  }
  for (const auto& [name, group] : state.groups) {
    expect(group->bytes);
    for (const auto& [type, account] : group->kinds) expect(account);
  }
  for (const auto& storage : state.storages) {
    if (storage != nullptr) expect(storage->bytes);
  }
  for (const auto& [account, sum] : sums) {
    BOOST_TEST((account->used == sum.used && account->deleting == sum.deleting),
               account->used << '-' << account->deleting << " for " << sum.used << '-' << sum.deleting);
  }
}

void check_quotas(const manager_state& state) {
  for (const auto& [name, group] : state.groups) {
    BOOST_TEST(group->bytes.used <= signed_bytes(group->terms->capacity), name);
    for (const type_quota& quota : group->terms->type_quotas) {
      BOOST_TEST(group->kinds[quota.type].used <= signed_bytes(quota.capacity), name);
    }
  }
  for (const auto& storage : state.storages) {
    if (storage == nullptr || storage->terms->capacity == 0) continue;
    BOOST_TEST(storage->bytes.used <= signed_bytes(storage->terms->capacity), storage->terms->name);
  }
  for (const auto& [number, instance] : state.instances) {
    const std::uint64_t most = instance->group->terms->max_keys;
    BOOST_TEST((most == 0 || instance->index->count() <= most));
  }
}

void check_queued(const epoch_world& world) {
  std::multiset<std::pair<std::uint64_t, std::uint32_t>> queued, right;
  for (const due_removal& removal : world.queued) {
    for (std::uint32_t i = 0; i < removal.count; ++i) queued.emplace(removal.extent, removal.first + i);
  }
  for (const auto& [number, instance] : world.state.instances) {
    for (const auto& extent : instance->extents) {
      if (extent == nullptr) continue;
      for (std::uint32_t i = 0; i < extent->states.size(); ++i) {
        if (extent->states[i] == location_state::deleting) right.emplace(extent->name.extent, i);
      }
    }
  }
  BOOST_TEST((queued == right));
}

}  // namespace cenote::manager::test
