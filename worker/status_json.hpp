// The text of `cenote status --json`.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "worker/node_facts.hpp"

namespace cenote {

/// The reader of a status: an operator, a user, or a stranger, as each reader over HTTP is.
class status_reader {
 public:
  [[nodiscard]] static status_reader administrator() { return status_reader(kind::administrator, 0); }
  [[nodiscard]] static status_reader user(std::uint32_t uid) { return status_reader(kind::user, uid); }
  [[nodiscard]] static status_reader stranger() { return status_reader(kind::stranger, 0); }

  /// Whether a part with that owner (report_part::owner) is shown.
  [[nodiscard]] bool may_see(std::optional<std::uint32_t> owner) const noexcept {
    return !owner || kind_ == kind::administrator || (kind_ == kind::user && *owner == uid_);
  }
  auto operator<=>(const status_reader&) const = default;

 private:
  enum class kind : std::uint8_t { administrator, user, stranger };
  status_reader(kind type, std::uint32_t uid) : kind_(type), uid_(uid) {}

  kind kind_;
  std::uint32_t uid_;  ///< of a user
};

/// One JSON object: node, server, dram, instances, groups, sessions, counters. Sizes in bytes, times in seconds. Parts
/// that the reader may not see are left out; they are counted all the same.
[[nodiscard]] std::string status_json(const node_facts& facts,
                                      const status_reader& reader = status_reader::administrator());

}  // namespace cenote
