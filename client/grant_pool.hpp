// Blank blocks that were handed to this session: grants in session memory, and reservations bound to keys.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/block_ref.hpp"
#include "memory/session_memory.hpp"
#include "transport/local/attach.hpp"

namespace cenote::client {

class slab_map;

/// A blank block that this session alone writes.
struct grant {
  memory::block_ref block;
  std::uint32_t version = 0;
};

/// Thread-safe.
class grant_pool {
 public:
  explicit grant_pool(memory::session_memory memory) noexcept : memory_(memory) {}

  /// Which slots are looked at.
  enum class slots : std::uint8_t {
    used,  ///< up to the first one that never held a grant: the worker hands out the lowest first, and reuses the last
    all,   ///< for what a worker of another version did otherwise
  };

  /// Takes up to `wanted` grants of `group` and appends them to `out`; returns how many. First those whose memory is
  /// registered there, if `registered` is not null; then any.
  std::size_t take(std::uint32_t group, std::size_t wanted, std::vector<grant>& out, slots which,
                   const slab_map* registered = nullptr) noexcept;
  /// Grants of `group` that wait to be taken in used slots, counted up to `enough`.
  [[nodiscard]] std::size_t available(std::uint32_t group, std::size_t enough) const noexcept;

 private:
  template <class Test>
  std::size_t take_if(std::uint32_t group, std::size_t limit, std::vector<grant>& out, slots range,
                      const Test& test) noexcept;

  memory::session_memory memory_;
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
