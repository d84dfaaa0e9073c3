// Changes of one topic on their way to batches of events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/block_key.hpp"
#include "core/enum_names.hpp"
#include "tiers/block_changes/block_changes.hpp"

namespace cenote::publishing {

/// Of a tier, as events name it.
enum class event_medium : std::uint8_t { CPU, DISK };
CENOTE_ENUM_NAMES(event_medium, CPU, DISK);

/// Keeps changes in their order; neighbours of one kind become one event. Not thread-safe.
class event_batcher {
 public:
  static constexpr std::uint32_t most_hashes = 1024;  ///< in a batch: some 35 kB of 32-byte keys

  /// `group`: nothing where an instance has one only. `what` is stored or removed.
  void add(tier_change_kind change, event_medium medium, std::optional<std::uint32_t> group, const full_key& key);
  /// All of the medium is gone.
  void clear(event_medium medium);
  [[nodiscard]] bool is_empty() const noexcept { return events_.empty(); }
  /// Payloads `[timestamp, [events], 0]` of MessagePack for all that was added. `timestamp`: seconds since 1970.
  [[nodiscard]] std::vector<std::string> take(double timestamp);

 private:
  struct pending_event {
    tier_change_kind kind = tier_change_kind::stored;
    event_medium medium = event_medium::CPU;
    std::optional<std::uint32_t> group;
    std::uint32_t hashes = 0;
    std::string packed;  ///< the hashes, as MessagePack has them
  };
  static void pack(std::string& target, const pending_event& change);

  std::vector<pending_event> events_;
};

}  // namespace cenote::publishing
