// A session's lookups, out of words that its client may set to anything.
#pragma once

#include "memory/lookup_counts.hpp"
#include "tiers/blocks/types.hpp"

namespace cenote::blocks {

struct instance;

/// No count goes beyond: the largest up to which a metric, a double, has each number.
inline constexpr std::uint64_t most_lookups = std::uint64_t{1} << 53;

/// Adds, up to most_lookups. Both are at most that.
void add_lookups(memory::lookup_counts& sum, const memory::lookup_counts& part) noexcept;
/// Of all sessions of an instance, those that are over among them. Keeps what it sees with the sessions, so that no
/// later look has less.
[[nodiscard]] memory::lookup_counts lookups_of(const instance& instance) noexcept;
/// … of those, what its group has not been credited with yet.
[[nodiscard]] memory::lookup_counts uncredited(const memory::lookup_counts& lookups, const instance& instance) noexcept;
/// Adds to a group's counts those of one of its instances.
void add_hits(group_hits& sum, const memory::lookup_counts& part, std::uint32_t tokens_per_block) noexcept;
/// Tokens of so many keys, up to most_lookups.
[[nodiscard]] std::uint64_t tokens_of(std::uint64_t keys, std::uint32_t tokens_per_block) noexcept;

/// Follows the words of one session. What it makes of them never falls, and never has more hits than keys: a client
/// that lies falsifies what is counted of its own session.
class session_lookups {
 public:
  session_lookups() noexcept = default;
  /// Counts from `words` on: an earlier worker has counted what they have already.
  explicit session_lookups(const memory::lookup_counts& words) noexcept : base_(words) {}

  void look(const memory::lookup_counts& words) noexcept;
  [[nodiscard]] memory::lookup_counts counts() const noexcept;

 private:
  memory::lookup_counts base_{};
  memory::lookup_counts grown_{};
};

}  // namespace cenote::blocks
