// Instances that were removed and still have bytes: they are remembered until the last of these is gone.
#pragma once

#include <string>
#include <string_view>

#include "services/manager/store/journal.hpp"
#include "services/manager/writes/manager_state.hpp"

namespace cenote::manager {

/// Whether a row of the registry's kind is one of these.
[[nodiscard]] bool is_departure(std::string_view key) noexcept;
/// The row of an instance that departs; `instance` is in the registry still.
[[nodiscard]] journal_row departure_row(const registered_instance& instance);
/// The same row, taken away.
[[nodiscard]] journal_row departure_end(std::uint64_t instance);
/// Adds an instance that nothing finds to `state`. False: the row is damaged.
[[nodiscard]] bool restore_departure(manager_state& state, std::string_view key, std::string_view value);

}  // namespace cenote::manager
