// Blank blocks in this session's hands: grants waiting in session memory, and reservations bound to keys.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/block_ref.hpp"
#include "memory/session_memory.hpp"
#include "transport/local/attach.hpp"

namespace cenote::client {

/// A blank block that this session alone writes.
struct grant {
  memory::block_ref block;
  std::uint32_t version = 0;
};

/// Thread-safe.
class grant_pool {
 public:
  explicit grant_pool(memory::session_memory memory) noexcept : memory_(memory) {}

  /// Takes up to `wanted` grants of `group` and appends them to `out`; returns how many.
  std::size_t take(std::uint32_t group, std::size_t wanted, std::vector<grant>& out) noexcept;
  /// Grants of `group` that wait to be taken.
  [[nodiscard]] std::size_t available(std::uint32_t group) const noexcept;

 private:
  memory::session_memory memory_;
  std::atomic<std::size_t> cursor_{0};  ///< where the last scan ended
};

/// Reservations of this session: which parts of which block it may be writing. Thread-safe.
class reservations {
 public:
  /// What a re-attach can tell in one frame; the session asks for no more.
  static constexpr std::size_t limit = 3000;

  /// Before `count` more are asked for, so that all of them have room; false: they would be too many. Ends with
  /// settle().
  [[nodiscard]] bool admit(std::size_t count);
  void settle(std::size_t count);

  void add(memory::block_ref block, std::uint32_t version, std::uint64_t parts);
  void remove(memory::block_ref block, std::uint32_t version, std::uint64_t parts);
  void list(std::vector<local::held_block>& out) const;
  struct entry {
    memory::block_ref block;
    std::uint32_t version = 0;
    std::uint64_t parts = 0;
  };
  [[nodiscard]] std::vector<entry> all() const;
  [[nodiscard]] std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::size_t asked_for_ = 0;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> parts_;  ///< (block, version) -> parts
};

}  // namespace cenote::client
