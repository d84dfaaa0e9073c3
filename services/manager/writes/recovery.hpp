// The state of a manager out of its journal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "services/manager/store/journal.hpp"
#include "services/manager/writes/ledger.hpp"
#include "services/manager/writes/lost_extents.hpp"
#include "services/manager/writes/manager_state.hpp"
#include "services/manager/writes/registry_state.hpp"
#include "services/manager/writes/sessions.hpp"

namespace cenote::manager {

struct recovery_counts {
  std::uint64_t extents = 0;
  std::uint64_t blocks = 0;
  std::uint64_t damaged_rows = 0;   ///< that could not be read
  std::uint64_t lost_extents = 0;   ///< whose rows are damaged, or are not there beside their states
  std::uint64_t orphaned_rows = 0;  ///< extents of an instance or a storage that is not there
};

struct recovery_parts {
  manager_state& state;
  write_sessions& sessions;
  ledger::removal_receiver removals;
  worker_factory make_worker;
  std::function<void(const lost_extent&)> damages{};  ///< gets extents whose rows are damaged
  std::function<void(const extent_name&, round_time)>
      finishes{};                 ///< gets extents whose rows have no block, and go then
  plugin_types plugins{};         ///< that are there
  fault_table* faults = nullptr;  ///< null, but in tests
};

/// Begins an epoch and rebuilds all that the journal holds: registry, extents, accounts, open sessions, deletions that
/// were not done. `parts.state` is as new. A session has at least 10 s left. Damaged rows are skipped and counted;
/// where one is of an extent, that is lost. An extent whose states alone are damaged is given up. Errors: those of the
/// journal.
[[nodiscard]] result<recovery_counts> recover(journal& rows, recovery_parts& parts, round_time now);

}  // namespace cenote::manager
