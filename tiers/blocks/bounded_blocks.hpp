// Blocks that a cluster brings here: what they may take before they go ahead of all others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/time_types.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::blocks {

struct pool;

/// What a block is to the cluster.
enum class block_kind : std::uint8_t {
  own,     ///< stored here, and nowhere else that is known; what a restart finds, too
  copy,    ///< another node, to which it belongs, has it
  hosted,  ///< another node stored it here, where it belongs
};
inline constexpr std::size_t bounded_kinds = 2;  ///< all but own

/// Bytes that blocks of the bounded kinds take, of all pools together, and may take.
struct kind_shares {
  std::array<std::uint64_t, bounded_kinds> used{};
  std::array<std::uint64_t, bounded_kinds> most{};  ///< they are taken into account when memory is short

  [[nodiscard]] bool is_over(std::size_t kind) const noexcept { return used[kind] > most[kind]; }
};

/// Which blocks of a pool are of a bounded kind, least recently used first. Those that a policy orders are here as
/// well; a kind that takes more than its share gives the next victim, whatever the policy would choose.
struct bounded_order {
  const kind_shares* shares = nullptr;
  std::array<std::unique_ptr<eviction::policy>, bounded_kinds> by_kind;
  std::uint32_t stuck = 0;  ///< victims in a row that somebody held
  boot_time aside_until{};  ///< all were: until then the policy gives the victims
  bool is_aside = false;

  /// Nothing: no kind takes too much, or all of its blocks are held.
  [[nodiscard]] std::optional<std::uint32_t> victim() const;
  /// The victim cannot go.
  void note_stuck(boot_time now) noexcept;
  void note_gone() noexcept { stuck = 0; }
  /// Looks at them again, if it is time.
  void resume(boot_time now) noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept;
};

/// Keeps the kinds of all blocks, by record, and the bounded orders of all pools. Takes memory only for blocks of
/// bounded kinds and their neighbours: a node alone has none. Not thread-safe.
class bounded_blocks {
 public:
  explicit bounded_blocks(kind_shares& shares) noexcept : shares_(shares) {}

  void equip(pool& group);
  [[nodiscard]] block_kind kind_of(std::uint32_t record) const noexcept;
  /// Makes room in the orders, so that set_kind() does not fail. Throws std::bad_alloc.
  void prepare(std::uint32_t record, block_kind kind);
  /// Of a block that is in no order. Throws std::bad_alloc, and has changed nothing then.
  void set_kind(std::uint32_t record, block_kind kind);

  // Of a block that its pool's policy orders, or ordered until now.
  void enter(pool& group, std::uint32_t record, boot_time now);
  void leave(pool& group, std::uint32_t record);
  void touch(pool& group, std::uint32_t record, boot_time now);

 private:
  kind_shares& shares_;
  eviction::block_links links_;
  eviction::per_block<block_kind> kinds_;  ///< own where there is none
};

}  // namespace cenote::blocks
