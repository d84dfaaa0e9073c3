// Makes room: chooses the blocks that go when a level is reached, a time is over, or a request was refused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "services/manager/reclaim/levels.hpp"
#include "services/manager/writes/ledger.hpp"
#include "services/manager/writes/manager_state.hpp"
#include "services/manager/writes/write_command.hpp"

namespace cenote::manager {

/// Blocks that went, by reason.
struct reclaim_counts {
  std::uint64_t by_bytes = 0;
  std::uint64_t by_type = 0;
  std::uint64_t by_storage = 0;
  std::uint64_t by_keys = 0;
  std::uint64_t by_time = 0;
  std::uint64_t orphaned = 0;  ///< though a block behind them was served

  [[nodiscard]] std::uint64_t sum() const noexcept { return by_bytes + by_type + by_storage + by_keys + by_time; }
};

/// A plain object; time is an argument. The writer's alone. Once a level is reached it goes on, some blocks a round,
/// until the goal below it; what is being deleted counts as gone.
class reclaimer {
 public:
  /// Blocks that are looked at for one without a served child.
  static constexpr std::size_t most_passed_over = 256;

  explicit reclaimer(manager_state& state) noexcept : state_(state) {}

  /// True: something was evicted, and there may be more.
  bool run(ledger& changes, write_round& round);
  [[nodiscard]] const reclaim_counts& counts() const noexcept { return counts_; }

 private:
  /// Where victims come from.
  struct victim_source {
    group_usage* group = nullptr;
    instance_state* instance = nullptr;  ///< null: all of the group
    std::optional<storage_type> type{};  ///< nothing: all
    std::optional<std::uint8_t> storage{};
  };
  struct chosen_pool {
    instance_state* instance = nullptr;
    std::uint8_t storage = 0;
    reclaim_pool* pool = nullptr;
  };

  struct ranked_pool {
    std::uint64_t rank = 0;
    std::size_t place = 0;  ///< in the list of pools
    auto operator<=>(const ranked_pool&) const = default;
  };
  /// The lowest rank first, of equal ones the first of the list.
  using pool_order = std::priority_queue<ranked_pool, std::vector<ranked_pool>, std::greater<>>;

  /// A quota, what it holds back, and the counter of what goes for it.
  struct quota_use {
    victim_source source{};
    level_use use{};
    std::int64_t lack = 0;  ///< that a refused request lacked
    std::uint64_t& count;
  };

  // True: something was evicted. Quotas that overlap are looked at one after the other, a round each.
  bool run_group(group_usage& group, ledger& changes, write_round& round);
  bool run_quota(const quota_use& quota, ledger& changes, write_round& round);
  void free_bytes(const victim_source& source, std::int64_t excess, std::uint64_t& count, ledger& changes,
                  write_round& round);
  bool free_keys(instance_state& instance, ledger& changes, write_round& round);
  void end_checks(round_time now);
  bool expire(group_usage& group, ledger& changes, write_round& round);
  [[nodiscard]] std::vector<chosen_pool> pools_of(const victim_source& source) const;
  /// The lower, the sooner it gives a victim.
  [[nodiscard]] std::uint64_t rank_of(const chosen_pool& choice, budget_policy budget);
  [[nodiscard]] pool_order order_of(const std::vector<chosen_pool>& pools, budget_policy budget);
  [[nodiscard]] static std::string quota_name(const victim_source& source);
  [[nodiscard]] std::optional<std::uint32_t> victim_of(const chosen_pool& choice);
  /// Bytes that go with the block.
  std::int64_t evict(const chosen_pool& choice, std::uint32_t record, ledger& changes, round_time now);

  manager_state& state_;
  reclaim_counts counts_;
  std::map<std::string, std::int64_t> goals_;  ///< what may stay, of what is over its level, by name of the quota
  std::set<std::uint8_t> relieved_;            ///< storages that some group made room in, in this round
  std::size_t turn_ = 0;                       ///< of pools that give victims one after the other
  std::uint64_t next_rank_ = 0;                ///< of these pools
  round_time next_whole_{};
  std::map<const instance_state*, std::int64_t> evicted_bytes_;  ///< in this round; they are charged at its end
};

/// A group's level as its strategy gives it.
[[nodiscard]] level_terms level_of(const group_terms& group) noexcept;

}  // namespace cenote::manager
