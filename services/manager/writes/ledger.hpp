// The one way in which states of blocks change: in the writer's view, in the journal, and then for readers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "services/manager/store/journal.hpp"
#include "services/manager/writes/fault_points.hpp"
#include "services/manager/writes/manager_state.hpp"

namespace cenote::manager {

/// Deletions that are due once the delay of their group is over: those of the positions whose state is `deleting`.
struct due_removal {
  round_time due{};
  std::uint64_t instance = 0;  ///< its number
  std::uint64_t extent = 0;    ///< its number
  std::uint32_t table = 0;
  std::uint32_t first = 0, count = 0;  ///< positions
  std::uint32_t attempts = 0;
};

/// Collects the changes of a round, writes them in one batch, and makes them visible: commands call set_state() and the
/// like, and answer after commit(). The writer's alone.
class ledger {
 public:
  using removal_receiver = std::function<void(const due_removal&)>;

  /// `removals` gets each range of blocks that is to be deleted. All outlive the ledger. `faults`: null, but in tests.
  ledger(manager_state& state, journal& rows, removal_receiver removals, fault_table* faults = nullptr)
      : state_(state), rows_(rows), removals_(std::move(removals)), faults_(faults) {}

  /// The round has changes of this work, for the faults that tests inject.
  void note(round_work work) noexcept { works_ |= 1U << static_cast<unsigned>(work); }
  /// A new extent, whose blocks are `writing` already.
  void grant(extent_state& extent, const extent_grant& terms);
  /// A block changes its state, in the writer's view at once.
  void set_state(instance_state& instance, extent_state& extent, std::uint32_t position, location_state next);
  /// The extent's session ends.
  void close(instance_state& instance, extent_state& extent, std::uint32_t wrote_at, std::uint64_t finish_mark);
  void add_row(journal_row row) { batch_.push_back(std::move(row)); }
  /// Both rows of an extent go.
  void erase_rows(const extent_name& name);
  /// The rows of an extent without blocks go then: until then the finish of its session is remembered.
  void erase_rows_later(const extent_name& name, round_time due) { row_ends_.emplace(due, name); }
  [[nodiscard]] bool is_empty() const noexcept { return batch_.empty() && dirty_.empty(); }

  /// Writes the round. After an error nothing of it is visible, and the state has to be recovered from the store.
  [[nodiscard]] result<> commit(round_time now);
  /// Bytes of the rows that were written since the last time.
  [[nodiscard]] std::uint64_t take_bytes() noexcept { return std::exchange(bytes_, 0); }

 private:
  struct dirty_extent {
    instance_state* instance = nullptr;
    extent_state* extent = nullptr;
    std::vector<std::uint32_t> changes{};  ///< positions, some maybe twice
  };

  [[nodiscard]] dirty_extent& dirty(instance_state& instance, extent_state& extent);
  /// The rows of an extent without blocks go, but the finish of its session is remembered for a while.
  void write_end(const instance_state& instance, const extent_state& extent, round_time now);
  void write_states(const instance_state& instance, const extent_state& extent, round_time now);
  /// The batch with the points around it.
  [[nodiscard]] result<> write_batch();
  void publish(dirty_extent& entry, round_time now);
  static void serve_blocks(const dirty_extent& entry, round_time now);
  /// Of one that is deleted, or gone. False: readers see this state already.
  bool end_block(instance_state& instance, const extent_state& extent, std::uint32_t position);
  void give_up_block(instance_state& instance, const extent_state& extent, std::uint32_t record, const location& place);
  void forget_block(instance_state& instance, const extent_state& extent, std::uint32_t record, location place);

  manager_state& state_;
  journal& rows_;
  removal_receiver removals_;
  fault_table* faults_;
  std::uint32_t works_ = 0;  ///< a bit a round_work, of this round
  std::vector<journal_row> batch_;
  std::uint64_t bytes_ = 0;
  std::multimap<round_time, extent_name> row_ends_;  ///< rows that go at a time
  std::vector<dirty_extent> dirty_;
  std::unordered_map<const extent_state*, std::size_t> places_;  ///< in dirty_
};

}  // namespace cenote::manager
