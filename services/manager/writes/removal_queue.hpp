// Deletions: what is due goes to its storage, again and again until it is gone.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <vector>

#include "services/manager/writes/ledger.hpp"
#include "services/manager/writes/lost_extents.hpp"
#include "services/manager/writes/manager_state.hpp"
#include "services/manager/writes/write_settings.hpp"

namespace cenote::manager {

/// Hands due deletions to the storages in batches, in the order of their times. A failure is repeated after a second,
/// then after twice as long each time, up to five minutes. A client that is late may write what was deleted: what a
/// session gave up is deleted once more after the quarantine, and after ten times that. The writer's alone; all outlive
/// it.
class removal_queue {
 public:
  static constexpr std::uint32_t batch_blocks = 128;
  static constexpr std::uint32_t most_batches = 256;  ///< under way per storage

  static constexpr std::size_t most_repeated = std::size_t{1} << 20U;  ///< items that wait for their second deletion

  removal_queue(manager_state& state, const write_settings& settings)
      : state_(state), settings_(settings), extents_(state, settings) {}

  void add(const due_removal& removal) { waiting_.push(removal); }
  void add(const lost_extent& extent) { extents_.add(extent); }
  /// Hands over what is due, a bounded number of blocks.
  void issue(ledger& changes, round_time now);
  /// A storage has answered: what is gone leaves the ledger, what failed waits.
  void complete(const removal_outcome& outcome, ledger& changes, round_time now);
  [[nodiscard]] std::optional<round_time> next_due() const;
  [[nodiscard]] std::size_t size() const noexcept { return waiting_.size() + issued_.size() + extents_.size(); }
  /// Extents whose rows are damaged and stay until their bytes are gone.
  [[nodiscard]] std::size_t lost_count() const noexcept { return extents_.size(); }

 private:
  struct due_order {
    bool operator()(const due_removal& one, const due_removal& other) const noexcept { return one.due > other.due; }
  };
  /// A block of a batch, and how many items it has there.
  struct issued_block {
    due_removal removal{};
    std::uint32_t position = 0;
    std::uint32_t items = 0;
  };
  struct issued_batch {
    std::uint8_t storage = 0;
    std::uint64_t worker = 0;
    std::vector<issued_block> blocks{};
  };

  /// Items of a session that was given up, which are deleted once more.
  struct repeated_removal {
    round_time due{};
    std::uint8_t storage = 0;
    std::vector<removal_item> items{};
  };

  [[nodiscard]] extent_state* extent_of(const due_removal& removal) const;
  /// The storage of a batch, if its worker is still there; else null.
  [[nodiscard]] storage_state* storage_of(const issued_batch& batch) const noexcept;
  /// Batches of workers that are gone have no outcome.
  void drop_unanswered();
  void repeat_later(const extent_state& extent, const std::vector<removal_item>& items, round_time now);
  void issue_repeated(round_time now);
  void issue_range(const due_removal& removal, extent_state& extent, storage_state& storage, round_time now);
  [[nodiscard]] static bool is_last_of_file(const extent_state& extent, std::uint32_t position,
                                            std::uint32_t blocks_per_file);

  manager_state& state_;
  const write_settings& settings_;
  std::deque<repeated_removal> first_, second_;  ///< by their times
  std::size_t repeated_ = 0;                     ///< items in both
  std::priority_queue<due_removal, std::vector<due_removal>, due_order> waiting_;
  std::map<std::uint64_t, issued_batch> issued_;
  std::uint64_t next_batch_ = 1;
  std::uint64_t worker_changes_ = 0;  ///< as many as were looked at
  lost_extents extents_;
};

}  // namespace cenote::manager
