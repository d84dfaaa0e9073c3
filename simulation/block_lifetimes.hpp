// When blocks of a simulated pool end because a time has passed, and not for want of room.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cenote::simulation {

/// The event that begins a block's time to live.
enum class lifetime_start : std::uint8_t {
  last_use,   ///< the last request that had it, as with `groups.<name>.ttl` of a node
  insertion,  ///< the request that stored it: uses do not prolong it
};

/// A time to live of all blocks. A block is there for `ms` milliseconds and gone in the next one.
struct lifetime {
  std::uint64_t ms = 0;  ///< 0: endless
  lifetime_start start = lifetime_start::last_use;
};

/// The ends of blocks, by number. Time never goes back. O(1) for each use, about 20 bytes for each use within a time to
/// live and 8 for each block. Not thread-safe.
class block_lifetimes {
 public:
  /// For blocks with numbers below `blocks`.
  block_lifetimes(const lifetime& rule, std::uint32_t blocks) : rule_(rule), ends_(blocks, no_end) {}

  /// A block whose time is over at `now_ms`, once: it may be gone already. Nothing when there is no other.
  [[nodiscard]] std::optional<std::uint32_t> next_ended(std::uint64_t now_ms);
  /// `block` came in.
  void begin(std::uint32_t block, std::uint64_t now_ms);
  /// `block`, one of those here, was used.
  void use(std::uint32_t block, std::uint64_t now_ms);

 private:
  static constexpr std::uint64_t no_end = 0;

  struct scheduled_end {
    std::uint64_t ms = 0;
    std::uint32_t block = 0;
  };

  lifetime rule_;
  std::deque<scheduled_end> queue_;  ///< in the order of time; ends_ has the one that counts
  std::vector<std::uint64_t> ends_;  ///< by block
};

}  // namespace cenote::simulation
