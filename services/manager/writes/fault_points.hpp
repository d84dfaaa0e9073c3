// Points of a manager's work at which tests inject faults.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "core/enum_names.hpp"
#include "core/error.hpp"

namespace cenote::manager {

/// The work of a round of the writer; a round may do several.
enum class round_work : std::uint8_t { start, finish, remove, trim, reclaim, deletion };

/// `…_batch`: the journal gets the round next. `…_written`: the journal has it, and neither readers nor clients know.
/// `storage_…`: around a deletion, on the storage's thread. `recovery_…`: with the registry read, with the extents
/// read, and with all done but the view that readers get.
enum class fault_point : std::uint8_t {
  start_batch,
  start_written,
  finish_batch,
  finish_written,
  remove_batch,
  remove_written,
  trim_batch,
  trim_written,
  reclaim_batch,
  reclaim_written,
  deletion_batch,
  deletion_written,
  storage_removal,
  storage_removed,
  recovery_registry,
  recovery_extents,
  recovery_view,
};
CENOTE_ENUM_NAMES(fault_point, start_batch, start_written, finish_batch, finish_written, remove_batch, remove_written,
                  trim_batch, trim_written, reclaim_batch, reclaim_written, deletion_batch, deletion_written,
                  storage_removal, storage_removed, recovery_registry, recovery_extents, recovery_view);

enum class fault_kind : std::uint8_t {
  failure,  ///< what was to be done fails, or its outcome is lost
  kill,     ///< the process ends as by kill -9
};
enum class fault_repetition : std::uint8_t { always, once };

struct injected_fault {
  fault_kind kind = fault_kind::failure;
  fault_repetition repetition = fault_repetition::always;
  std::uint32_t first = 1;  ///< passing, from 1, at which it happens; with `always` also at those behind it
};

/// Faults by the names of points and of calls ("GetCacheLocation"). Thread-safe. It is there with `debug.enabled` only.
class fault_table {
 public:
  /// In the place of a fault that the name has. Errors: invalid_argument, with the names that are right.
  [[nodiscard]] result<> inject(std::string_view name, const injected_fault& fault);
  /// One kill, as in `debug.kill_at`: "point", or "point:3" for the third passing. Errors: invalid_argument.
  [[nodiscard]] result<> inject_kill(std::string_view text);
  /// Errors: invalid_argument, as above.
  [[nodiscard]] result<> remove(std::string_view name);
  void clear();
  /// Passes a point or a call. Errors: system: it has to fail.
  [[nodiscard]] result<> pass(std::string_view name);

 private:
  struct armed_fault {
    injected_fault terms{};
    std::uint64_t passings = 0;
  };

  std::mutex mutex_;
  std::map<std::string, armed_fault, std::less<>> faults_;
};

/// Passes a point; without a table nothing happens.
[[nodiscard]] inline result<> pass(fault_table* faults, fault_point point) {
  if (faults == nullptr) [[likely]]
    return {};
  return faults->pass(name_of(point));
}
/// The point in front of the batch of such a round; the one behind it is the next enumerator.
[[nodiscard]] constexpr fault_point batch_point(round_work work) noexcept {
  return static_cast<fault_point>(2 * static_cast<unsigned>(work));
}
[[nodiscard]] constexpr fault_point written_point(round_work work) noexcept {
  return static_cast<fault_point>(2 * static_cast<unsigned>(work) + 1);
}
static_assert(batch_point(round_work::start) == fault_point::start_batch);
static_assert(written_point(round_work::deletion) == fault_point::deletion_written);

}  // namespace cenote::manager
