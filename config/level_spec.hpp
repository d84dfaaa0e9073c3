// The levels of the log, one for all and one per component: "info,keeper=debug".
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace cenote::config {

enum class log_level { trace, debug, info, warn, error, off };

struct level_spec {
  log_level all = log_level::info;
  std::map<std::string, log_level, std::less<>> components;

  /// The component's own level, or that of all. Thread-safe.
  [[nodiscard]] log_level of(std::string_view component) const;
};

/// Comma-separated, each a level for all or component=level, nothing twice; empty is "info". Fails with
/// invalid_config and the nearest level's name.
[[nodiscard]] result<level_spec> parse_level_spec(std::string_view text);

}  // namespace cenote::config
