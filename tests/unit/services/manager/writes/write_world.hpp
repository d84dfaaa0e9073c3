// A manager's writer without its thread: rounds in virtual time, a journal in memory, storages that note deletions.
#pragma once

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "services/manager/service/command_queue.hpp"
#include "services/manager/service/registry_command.hpp"
#include "services/manager/store/memory_journal.hpp"
#include "services/manager/writes/reclaimer.hpp"
#include "services/manager/writes/recovery.hpp"
#include "services/manager/writes/remove_blocks.hpp"
#include "services/manager/writes/write_requests.hpp"
#include "tests/unit/services/manager/registry/registry_world.hpp"
#include "tests/unit/services/manager/writes/fake_storage.hpp"

namespace cenote::manager::test {

using row_map = std::map<std::string, std::string>;

/// A journal in memory that can fail before it writes anything.
class switched_journal final : public journal {
 public:
  bool is_failing = false;
  std::size_t writes = 0;

  [[nodiscard]] result<std::uint32_t> raise_epoch() override { return rows_.raise_epoch(); }
  [[nodiscard]] result<> write(std::span<const journal_row> changes) override {
    if (is_failing) return fail(error_code::system, "the disk is gone");
    ++writes;
    return rows_.write(changes);
  }
  [[nodiscard]] result<> read(row_kind kind, const row_visitor& visit) override { return rows_.read(kind, visit); }
  /// All rows, of all kinds.
  [[nodiscard]] row_map rows();

 private:
  memory_journal rows_;
};

/// The settings of a group in tests.
struct group_values {
  std::string name = "g";
  std::string candidates = R"("s1","s2")";
  std::int64_t capacity = 1'000'000'000;
  std::string type_quotas{};  ///< JSON objects
  std::int64_t max_keys = 1'000'000;
  double level = 0.9;
  std::uint32_t step_percentage = 5;
  std::int64_t delay_ms = 0;
  std::string strategy{};  ///< further fields of reclaim_strategy
  bool is_paused = false;
  std::int64_t version = 1;
};
[[nodiscard]] std::string json_of(const group_values& group);
[[nodiscard]] std::string storage_json(std::string_view name, std::uint32_t blocks_per_file = 1,
                                       std::uint64_t capacity = 0);
[[nodiscard]] std::string threefs_json(std::string_view name);
/// With the specs a of 512 bytes, b of 256, and groups of the same names, and ab.
[[nodiscard]] std::string instance_json(std::string_view id, std::string_view group = "g");

/// All that belongs to one epoch.
struct epoch_world {
  epoch_world(journal& rows, worker_factory make, const write_settings& settings);
  epoch_world(const epoch_world&) = delete;
  epoch_world& operator=(const epoch_world&) = delete;

  manager_state state;
  write_sessions sessions;
  std::vector<due_removal> queued;  ///< at recovery
  removal_queue removals;
  ledger changes;
  reclaimer reclaim{state};
  worker_factory make_worker;
  bool has_new_registry = false;
  write_parts parts;
  command_queue queue;
  std::map<std::uint64_t, extent_walk> departures;
};

/// Storages s1 and s2 of NFS, a group g with both, and an instance i.
class write_world {
 public:
  switched_journal rows;
  std::shared_ptr<removal_log> log = std::make_shared<removal_log>();
  write_settings settings;
  round_time now = round_time{} + std::chrono::hours(1'000);
  bool reclaims = false;
  bool awaits = true;         ///< the storages' outcomes, at the begin of a round
  bool has_evicted = false;   ///< in the last round
  std::size_t evictions = 0;  ///< rounds with some
  std::unique_ptr<epoch_world> live;

  explicit write_world(const group_values& group = {}, std::uint32_t blocks_per_file = 1);
  ~write_world();
  write_world(const write_world&) = delete;
  write_world& operator=(const write_world&) = delete;

  // Commands are run until they are complete.
  rpc_outcome<start_grant> start(const std::vector<std::uint64_t>& keys, const start_request& extra = {});
  answer_code finish(const start_grant& grant, const position_mask& success, const std::string& instance = "i");
  answer_code finish_all(const start_grant& grant, const std::string& instance = "i");
  /// Keys that are served from then on.
  start_grant write(const std::vector<std::uint64_t>& keys, const start_request& extra = {});
  answer_code remove(const std::vector<std::uint64_t>& keys, const position_mask& spared = {},
                     const std::string& instance = "i");
  answer_code trim(const trim_request& request);
  answer_code change(const registry_edit& edit);
  answer_code update_group(group_values group);
  answer_code add_storage(const std::string& json);
  answer_code add_instance(const std::string& json);
  answer_code remove_instance(const std::string& id);

  /// One round: outcomes of storages, deadlines, commands, departures, reclaim, deletions, the journal. False: the
  /// journal has failed.
  bool run_round();
  /// Rounds until all commands are answered; the number of rounds.
  std::size_t run_commands();
  void post(std::unique_ptr<write_command> command) { live->queue.add(std::move(command)); }
  /// Rounds until nothing is due or under way at this time.
  void settle();
  /// Whether the journal has no extent, once finishes are remembered no longer.
  [[nodiscard]] bool has_registry_alone();
  void pass(std::chrono::milliseconds time) { now += time; }
  /// Lets storages that are new be probed.
  void probe();
  /// Another epoch from the journal.
  void recover();
  /// A second state from a copy of the journal, without workers.
  [[nodiscard]] std::unique_ptr<epoch_world> recovered_copy();

  [[nodiscard]] instance_state& instance(std::string_view id = "i") const;
  [[nodiscard]] const group_usage& group(std::string_view name = "g") const {
    return *live->state.groups.find(name)->second;
  }
  /// The locations of a key, as "serving s1 3" with the mask of its specs, sorted.
  [[nodiscard]] std::string text_of(std::uint64_t key, std::string_view id = "i") const;
  [[nodiscard]] std::string storage_name(std::uint8_t number) const;

 private:
  [[nodiscard]] std::size_t batches() const;
  void depart(write_round& round);
};

/// All that readers and clients can see of a state, and what is to be done: equal for a state and its recovery.
[[nodiscard]] std::string picture_of(const manager_state& state);
/// Accounts, orders of eviction and counts of children against a recount of the index.
void check_counts(const manager_state& state);
/// The quotas of groups, types and storages.
void check_quotas(const manager_state& state);
/// The deletions that a recovery queued are those of all blocks that go.
void check_queued(const epoch_world& world);

[[nodiscard]] inline position_mask first(std::int64_t count) {
  return {.offset = count};
}
[[nodiscard]] inline position_mask bools(std::vector<bool> values) {
  return {.values = std::move(values)};
}
[[nodiscard]] std::vector<std::uint64_t> numbers(std::uint64_t begin, std::size_t count);

}  // namespace cenote::manager::test
