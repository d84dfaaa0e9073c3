#include "config/level_spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "config/nearest.hpp"
#include "core/text.hpp"

namespace cenote::config {
namespace {

/// In the order of log_level.
const std::vector<std::string>& level_names() {
  static const std::vector<std::string> names{"trace", "debug", "info", "warn", "error", "off"};
  return names;
}

/// Whoever writes a line: the names that the sources give to logger(), in their order.
const std::vector<std::string>& component_names() {
  static const std::vector<std::string> names{"cluster", "dram",     "gpu",      "indexer",   "keeper",   "manager",
                                              "nvme",    "optimize", "prefetch", "publisher", "recovery", "remote",
                                              "server",  "session",  "trace",    "worker"};
  return names;
}

result<void> check_component(std::string_view name) {
  const auto& names = component_names();
  if (std::ranges::find(names, name) != names.end()) return {};
  const auto meant = nearest(name, names);
  return fail(error_code::invalid_config,
              fmt::format("no component `{}` writes to the log; {}components are {}", name,
                          meant ? fmt::format("did you mean `{}`? ", *meant) : "", fmt::join(names, ", ")));
}

result<log_level> parse_level(std::string_view name) {
  const auto& names = level_names();
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<log_level>(found - names.begin());
  const auto meant = nearest(name, names);
  return fail(error_code::invalid_config,
              fmt::format("unknown log level `{}`; {}levels are {}", name,
                          meant ? fmt::format("did you mean `{}`? ", *meant) : "", fmt::join(names, ", ")));
}

std::unexpected<error> twice(std::string_view what) {
  return fail(error_code::invalid_config, fmt::format("the level of {} is given twice; give it once", what));
}

}  // namespace

log_level level_spec::of(std::string_view component) const {
  const auto own = components.find(component);
  return own == components.end() ? all : own->second;
}

result<level_spec> parse_level_spec(std::string_view text) {
  level_spec spec;
  bool all_given = false;
  auto rest = trimmed(text);
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const auto item = trimmed(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const auto equals = item.find('=');
    const bool for_all = equals == std::string_view::npos;
    const auto component = for_all ? std::string_view{} : trimmed(item.substr(0, equals));
    const auto level = parse_level(trimmed(for_all ? item : item.substr(equals + 1)));
    if (!level) return std::unexpected(level.error());
    if (for_all) {
      if (std::exchange(all_given, true)) return twice("all components");
      spec.all = *level;
    } else if (component.empty()) {
      return fail(error_code::invalid_config, fmt::format("`{}` names no component; write it as keeper=debug", item));
    } else if (auto known = check_component(component); !known) {
      return std::unexpected(known.error());
    } else if (!spec.components.emplace(component, *level).second) {
      return twice(component);
    }
  }
  return spec;
}

}  // namespace cenote::config
