// Everything that a manager's writer owns.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "services/manager/index/instance_index.hpp"
#include "services/manager/reclaim/reclaim_pool.hpp"
#include "services/manager/registry/registry.hpp"
#include "services/manager/storages/storage_worker.hpp"
#include "services/manager/store/extent_row.hpp"
#include "services/manager/writes/byte_account.hpp"

namespace cenote::manager {

using round_time = std::chrono::steady_clock::time_point;

/// The grant of a write session. The writer's view: readers see a state once it is in the journal.
struct extent_state {
  extent_name name{};
  std::uint64_t nonce = 0;
  std::uint32_t table = 0;  ///< its number in the index's table
  std::uint8_t storage = 0;
  bool is_open = true;  ///< the session may be finished
  round_time deadline{};
  std::uint32_t granted_at = 0;   ///< Unix seconds
  std::uint32_t wrote_at = 0;     ///< Unix seconds; 0: open
  std::uint64_t finish_mark = 0;  ///< checksum of the mask of its finish
  state_mask states{};
  std::uint32_t present = 0;             ///< blocks whose state is not none
  std::vector<std::uint32_t> records{};  ///< by position
  std::vector<std::uint64_t> specs{};    ///< granted: for all blocks, or for each; of open sessions alone
  std::vector<bool> issued{};            ///< by position, once a deletion was handed to the storage; else empty
};

/// Of a session that is finished.
[[nodiscard]] extent_finish finish_of(const extent_state& extent) noexcept;

struct group_usage {
  std::shared_ptr<const group_terms> terms{};
  byte_account bytes{};
  std::map<storage_type, byte_account> kinds{};  ///< by type of storage
  std::int64_t wanted_bytes = 0;                 ///< that a refused request lacked
  bool is_touched = true;                        ///< something was charged, or refused, since the reclaimer looked
  std::size_t instances = 0;
  round_time next_check{};  ///< of its levels; the strategy's period goes by in between

  [[nodiscard]] bool is_due(round_time now) const noexcept { return now >= next_check; }
};

struct instance_state {
  std::shared_ptr<const instance_terms> terms{};
  std::shared_ptr<instance_index> index{};
  std::shared_ptr<group_usage> group{};
  std::vector<std::unique_ptr<extent_state>> extents{};           ///< by table number
  std::map<std::uint8_t, std::unique_ptr<reclaim_pool>> pools{};  ///< of what is served, by storage
  std::vector<std::uint16_t> served_children{};                   ///< by record
  byte_account bytes{};
  std::int64_t wanted_keys = 0;    ///< that a refused request lacked
  std::int64_t deleting_keys = 0;  ///< records that have nothing but deleted blocks
  std::size_t lost_extents = 0;    ///< whose rows are damaged, and whose bytes may still be there
  bool is_touched = true;          ///< as the group's
  bool is_departing = false;       ///< removed; it goes with its last extent

  [[nodiscard]] extent_state* extent(std::uint32_t table) const noexcept {
    return table < extents.size() ? extents[table].get() : nullptr;
  }
  /// Bytes of a block with these specs.
  [[nodiscard]] std::int64_t bytes_of(std::uint64_t specs) const noexcept;
};

struct storage_state {
  std::shared_ptr<const storage_terms> terms{};
  byte_account bytes{};
  storage_condition condition = storage_condition::unprobed;
  /// For readers.
  std::shared_ptr<storage_signal> signal = std::make_shared<storage_signal>();
  std::unique_ptr<storage_worker> worker{};
  bool is_closing = false;             ///< its locations are dropped: no new writes
  std::uint64_t worker_number = 0;     ///< another one for each worker
  std::uint32_t batches = 0;           ///< deletions under way at this worker
  std::uint64_t failed_deletions = 0;  ///< so far

  [[nodiscard]] bool is_readable() const noexcept { return terms->is_enabled && manager::is_readable(condition); }
  [[nodiscard]] bool is_writable() const noexcept {
    return terms->is_enabled && !is_closing && condition == storage_condition::healthy;
  }
};

/// The storage of an extent whose session is not granted yet.
inline constexpr std::uint8_t undecided_storage = 255;

struct manager_state {
  manager_registry settings{};
  std::uint32_t epoch = 0;
  std::uint32_t next_extent = 1;  ///< the lower half of the next extent's number
  std::unordered_map<std::uint64_t, std::unique_ptr<instance_state>> instances{};  ///< by number
  std::map<std::string, std::uint64_t, std::less<>> instance_numbers{};            ///< of those that can be asked
  std::map<std::string, std::shared_ptr<group_usage>, std::less<>> groups{};
  std::array<std::unique_ptr<storage_state>, most_storages> storages{};  ///< by number
  std::map<std::string, std::uint8_t, std::less<>> storage_numbers{};
  std::uint64_t worker_changes = 0;                                ///< workers that came or went so far
  std::vector<std::unique_ptr<storage_worker>> retired_workers{};  ///< of storages that were removed

  [[nodiscard]] instance_state* instance(std::uint64_t number) const noexcept;
  [[nodiscard]] instance_state* instance_called(std::string_view id) const noexcept;
  [[nodiscard]] storage_state* storage_called(std::string_view name) const noexcept;
  [[nodiscard]] std::uint64_t new_extent_number() noexcept { return std::uint64_t{epoch} << 32U | next_extent++; }
};

/// Adds to the accounts of an instance, its group and a storage.
void charge(manager_state& state, instance_state& instance, std::uint8_t storage, std::int64_t used,
            std::int64_t deleting);

/// Whether a record has nothing but deleted blocks: it counts as gone already.
[[nodiscard]] bool is_deleted_alone(const instance_state& instance, std::uint32_t record);

/// Tenths of a second since the machine's start, the time of policies.
[[nodiscard]] std::uint32_t tenths_of(round_time now) noexcept;
/// Milliseconds since 1970.
[[nodiscard]] std::int64_t unix_ms() noexcept;
/// Seconds since 1970.
[[nodiscard]] std::uint32_t unix_seconds() noexcept;

}  // namespace cenote::manager
