// Deletions: what is due goes to its storage, again and again until it is gone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <vector>

#include "services/manager/writes/ledger.hpp"
#include "services/manager/writes/manager_state.hpp"

namespace cenote::manager {

/// Hands due deletions to the storages in batches, in the order of their times. A failure is repeated after a second,
/// then after twice as long each time, up to five minutes. The writer's alone; all outlive it.
class removal_queue {
 public:
  static constexpr std::uint32_t batch_blocks = 128;
  static constexpr std::uint32_t most_batches = 256;  ///< under way per storage

  explicit removal_queue(manager_state& state) noexcept : state_(state) {}

  void add(const due_removal& removal) { waiting_.push(removal); }
  /// Hands over what is due, a bounded number of blocks.
  void issue(steady_time now);
  /// A storage has answered: what is gone leaves the ledger, what failed waits.
  void complete(const removal_outcome& outcome, ledger& changes, steady_time now);
  [[nodiscard]] std::optional<steady_time> next_due() const;
  [[nodiscard]] std::size_t size() const noexcept { return waiting_.size() + issued_.size(); }

 private:
  struct later {
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

  [[nodiscard]] extent_state* extent_of(const due_removal& removal) const;
  /// The storage of a batch, if its worker is still there; else null.
  [[nodiscard]] storage_state* storage_of(const issued_batch& batch) const noexcept;
  /// Batches of workers that are gone have no outcome.
  void drop_unanswered();
  void issue_range(const due_removal& removal, extent_state& extent, storage_state& storage);
  [[nodiscard]] static bool is_last_of_file(const extent_state& extent, std::uint32_t position,
                                            std::uint32_t blocks_per_file);

  manager_state& state_;
  std::priority_queue<due_removal, std::vector<due_removal>, later> waiting_;
  std::map<std::uint64_t, issued_batch> issued_;
  std::uint64_t next_batch_ = 1;
  std::uint64_t worker_changes_ = 0;  ///< as many as were looked at
};

}  // namespace cenote::manager
