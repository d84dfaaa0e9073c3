#include "worker/stop_limit.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/units.hpp"
#include "transport/local/socket.hpp"
#include "worker/service_unit.hpp"

namespace cenote {

namespace {

namespace fs = std::filesystem;
using level = finding::level;
using std::chrono::nanoseconds;

constexpr auto connect_patience = std::chrono::seconds(1);

struct stop_limit {
  nanoseconds time{};
  std::string source;  ///< a unit, or the key
};

/// A remedy that allows a stop of so many seconds.
std::string longer(const stop_limit& limit, std::int64_t seconds) {
  if (limit.source != stop_limit_key)
    return fmt::format("set TimeoutStopSec={} in a drop-in of {}", seconds, limit.source);
  return fmt::format("set the pod's grace period, or the container's stop timeout, and node.stop_limit to {}s",
                     seconds);
}

std::optional<stop_limit> limit_of(const service_unit& unit, const fs::path& root) {
  const auto time = stop_limit_of(unit, root);
  if (!time) return std::nullopt;
  return stop_limit{*time, unit.name};
}

/// The process that listens at the node's socket. 0: one of another PID namespace. Nothing: none listens.
std::optional<pid_t> running_keeper(const config::node_config& config) {
  const auto socket =
      local::connect_to(config::socket_path(config), std::chrono::steady_clock::now() + connect_patience);
  if (!socket) return std::nullopt;
  const auto peer = local::credentials_of(socket->get());
  return peer ? peer->pid : 0;
}

/// Whether systemd executed this very process, and not one that has it as a descendant.
bool is_main_process() {
  const char* executed = std::getenv("SYSTEMD_EXEC_PID");
  return executed != nullptr && executed == std::to_string(::getpid());
}

std::optional<stop_limit> find_limit(const config::node_config& config, const fs::path& root) {
  if (config.node.stop_limit.count() > 0) {
    return stop_limit{config.node.stop_limit, std::string(stop_limit_key)};
  }
  auto process = running_keeper(config);
  if (!process && is_main_process()) process = ::getpid();
  if (process) {
    const auto unit = unit_of(*process, root);
    return unit ? limit_of(*unit, root) : std::nullopt;
  }
  std::optional<stop_limit> shortest;
  for (const service_unit& unit : node_units(root)) {
    const auto limit = limit_of(unit, root);
    if (limit && (!shortest || limit->time < shortest->time)) shortest = limit;
  }
  return shortest;
}

}  // namespace

finding check_stop_limit(const config::node_config& config, const fs::path& root) {
  const auto needed = config::stop_time(config);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(needed);
  const auto limit = find_limit(config, root);
  if (!limit) {
    return {level::unknown, "stop limit",
            fmt::format("not known; a stop in order may take {}", format_duration(needed)),
            "name the pod's grace period, or the container's stop timeout, in node.stop_limit; systemd's is read from "
            "the unit",
            std::string(stop_limit_key)};
  }
  if (limit->time == unlimited_stop) return {level::ok, "stop limit", fmt::format("none, by {}", limit->source)};
  const auto state = fmt::format("{} by {}; a stop in order may take {}", format_duration(limit->time), limit->source,
                                 format_duration(needed));
  if (limit->time >= needed) return {level::ok, "stop limit", state};
  return {level::warn, "stop limit", state,
          fmt::format("the node is killed before it has ended: {}, or a smaller node.drain_timeout or "
                      "node.flush_timeout",
                      longer(*limit, seconds.count())),
          std::string(stop_limit_key)};
}

}  // namespace cenote
