// The systemd unit that a process belongs to, and how long a stop of it may take.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cenote {

/// All functions below are thread-safe. `root` replaces "/" in tests, for files and for the program systemctl.

/// A stop that is never cut short.
inline constexpr auto unlimited_stop = std::chrono::nanoseconds::max();

/// systemd's time span: "45", "1min 30s", "infinity". Nothing: it is none, or longer than a duration holds.
[[nodiscard]] std::optional<std::chrono::nanoseconds> parse_time_span(std::string_view text);

struct service_unit {
  enum class owner { system, user } manager = owner::system;
  std::string name;  ///< "cenote.service"
};

/// The service that the process belongs to by its cgroup. Nothing: none does, as in a shell's session or a container.
[[nodiscard]] std::optional<service_unit> unit_of(pid_t process, const std::filesystem::path& root = "/");

/// The time after which systemd kills the unit, by systemctl where systemd runs, else by the unit's files. Nothing:
/// neither has it. Waits for systemctl, 3 s at most.
[[nodiscard]] std::optional<std::chrono::nanoseconds> stop_limit_of(const service_unit& unit,
                                                                    const std::filesystem::path& root = "/");

/// Units of the system whose name begins with "cenote" and that run `cenote node`, by their files.
[[nodiscard]] std::vector<service_unit> node_units(const std::filesystem::path& root = "/");

}  // namespace cenote
