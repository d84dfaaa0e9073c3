// The groups that a caller of MetaService may see.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace cenote::manager {

/// Empty groups: all.
struct call_rights {
  std::vector<std::string> groups{};

  [[nodiscard]] bool may_see(std::string_view group) const noexcept {
    return groups.empty() || std::ranges::find(groups, group) != groups.end();
  }
};

}  // namespace cenote::manager
