// Extents whose rows are damaged: what they may have is deleted by its names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "services/manager/writes/ledger.hpp"
#include "services/manager/writes/manager_state.hpp"
#include "services/manager/writes/write_settings.hpp"

namespace cenote::manager {

/// All that is known of it.
struct lost_extent {
  extent_name name{};
  std::uint32_t blocks = most_extent_blocks;  ///< at most
  bool may_be_open = false;                   ///< a client may still write its blocks
  round_time due{};
};

/// Deletes in all storages what an extent may have there: its folder of files, or the keys of all blocks that it may
/// have. The rows go from the journal once each storage has confirmed it, so that a crash in between lets it be done
/// again. A storage has one deletion under way; one that is disabled, unhealthy or failing is tried again later. Blocks
/// that a client may still write are deleted once more after the quarantine, and after ten times that. Addresses of
/// plug-ins have keys, which are not known: nothing is deleted there. The writer's alone; all outlive it.
class lost_extents {
 public:
  static constexpr std::size_t most_extents = 65'536;  ///< the others wait for the next recovery
  static constexpr std::uint32_t keys_at_once = 4'096;

  lost_extents(manager_state& state, const write_settings& settings) noexcept : state_(state), settings_(settings) {}

  /// `extent` is of an instance that is there.
  void add(const lost_extent& extent);
  /// Hands over what is due.
  void issue(ledger& changes, round_time now);
  /// A storage has answered.
  void complete(const removal_outcome& outcome, ledger& changes, round_time now);
  [[nodiscard]] std::optional<round_time> next_due() const;
  [[nodiscard]] std::size_t size() const noexcept { return extents_.size(); }

 private:
  /// The bytes of an extent in one storage.
  struct lost_part {
    extent_name name{};
    std::uint32_t next_key = 0;  ///< of those that it may have
    std::uint32_t attempts = 0;
    std::uint32_t repetitions = 0;  ///< that are to come
  };
  struct storage_work {
    std::multimap<round_time, lost_part> waiting{};
    round_time pause_end{};
    std::optional<lost_part> issued{};
    std::uint64_t batch = 0, worker = 0;  ///< of `issued`
  };
  struct extent_work {
    std::uint32_t blocks = 0;
    std::size_t storages = 0;  ///< that have not confirmed it
  };

  void issue_part(storage_work& work, storage_state& storage, round_time now);
  [[nodiscard]] std::vector<removal_item> items_of(const lost_part& part, const storage_terms& storage) const;
  [[nodiscard]] std::uint64_t keys_of(const lost_part& part, const storage_terms& storage) const;
  /// The part is gone from the storage.
  void advance(storage_work& work, lost_part part, const storage_terms& storage, ledger& changes, round_time now);
  void confirm(const extent_name& name, ledger& changes);
  /// The storage was removed.
  void drop(const storage_work& work, ledger& changes);

  manager_state& state_;
  const write_settings& settings_;
  std::map<extent_name, extent_work> extents_;
  std::map<std::uint8_t, storage_work> storages_;
  std::uint64_t next_batch_ = std::uint64_t{1} << 63U;  ///< no number of another deletion
};

}  // namespace cenote::manager
