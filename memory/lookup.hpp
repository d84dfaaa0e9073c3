// Finding blocks in shared memory: the hit path, without a system call, a lock per key or an allocation.
#pragma once

#include <cstdint>
#include <span>

#include "core/block_key.hpp"
#include "core/error.hpp"
#include "memory/block_ref.hpp"
#include "memory/index.hpp"
#include "memory/lower_hints.hpp"
#include "memory/pin_slots.hpp"
#include "memory/session_memory.hpp"
#include "memory/version_table.hpp"

namespace cenote::memory {

/// A key's place as the index says: a hint until version and full key agree.
struct candidate {
  static constexpr std::uint32_t nowhere = ~std::uint32_t{0};
  std::uint64_t value = 0;                ///< index_value
  std::uint32_t version_index = nowhere;  ///< of its version entry

  [[nodiscard]] bool found() const noexcept { return version_index != nowhere; }
};

/// A pinned block: it keeps its place and its bytes until the slot is given back.
struct pin {
  block_ref block;
  std::uint32_t slot = 0;
};

/// Reads index and version table, writes pin slots. Thread-safe; owns nothing: the constructor's arguments outlive it
/// and stay where they are.
class lookup {
 public:
  lookup(index_reader index, const version_table& versions, session_memory session, pin_slots& slots,
         hint_reader hints = {}) noexcept
      : index_(index), hints_(hints), versions_(&versions), session_(session), slots_(&slots) {}

  /// Length of the longest prefix of present keys.
  [[nodiscard]] std::size_t count_prefix(key_batch keys, std::uint32_t group) const noexcept;

  /// Length of the longest prefix of keys from `first` on that are present or, by the hints, in a lower tier.
  [[nodiscard]] std::size_t count_reachable(key_batch keys, std::uint32_t group, std::size_t first) const noexcept;
  /// Sets reachable[i] to 1 for keys that a lower tier holds, by the hints, and returns for how many it was 0.
  std::size_t add_lower(key_batch keys, std::uint32_t group, std::span<std::uint8_t> reachable) const noexcept;

  /// present[i] = 1 when key i is present, else 0. `present` has keys.count places.
  void find_each(key_batch keys, std::uint32_t group, std::span<std::uint8_t> present) const noexcept;

  /// Pins the longest prefix of present keys into out[0..n), which has keys.count places, and returns n. Fails with
  /// pin_limit, and nothing is pinned, when fewer slots are free than that prefix has keys.
  [[nodiscard]] result<std::size_t> pin_prefix(key_batch keys, std::uint32_t group, std::span<pin> out) const;

  /// Ends pins: clears their slots and gives them back.
  void unpin(std::span<const pin> pins) const noexcept;
  void unpin_slots(std::span<const std::uint32_t> slots) const noexcept;

 private:
  [[gnu::always_inline]] [[nodiscard]] candidate resolve(std::uint64_t value) const noexcept {
    if (!index_value::holds_block(value)) return {};
    const block_ref ref = index_value::ref(value);
    const slab_entry* slab = versions_->slab(ref.slab());
    if (slab == nullptr) return {};
    if (slab->state.load(std::memory_order_acquire) != static_cast<std::uint32_t>(slab_state::live)) return {};
    if (ref.block() >= slab->count || slab->first_version > max_version_entries - slab->count) return {};
    const std::uint32_t version_index = slab->first_version + ref.block();
    return versions_->reach(version_index, 1) ? candidate{value, version_index} : candidate{};
  }
  /// The same for a loop, by a mask and not by a branch that is sometimes mispredicted.
  [[gnu::always_inline]] [[nodiscard]] candidate resolve(const version_table::mapped_part& mapping,
                                                         std::uint64_t value) const noexcept {
    const block_ref ref = index_value::ref(value);
    if (ref.slab() >= mapping.slab_count) return resolve(value);
    const slab_entry& slab = mapping.slabs[ref.slab()];  // the first one, of no block, is never live
    const bool is_live = slab.state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(slab_state::live);
    const bool is_readable = is_live & (ref.block() < slab.count);
    const std::uint64_t version_index = std::uint64_t{slab.first_version} + ref.block();
    if (is_readable & (version_index >= mapping.entry_count)) return resolve(value);
    return {value, static_cast<std::uint32_t>(version_index) | (static_cast<std::uint32_t>(is_readable) - 1)};
  }
  [[gnu::always_inline]] [[nodiscard]] bool holds(const version_entry& entry, const candidate& place,
                                                  std::span<const std::byte> key) const noexcept {
    return index_value::matches(place.value, entry.version.load(std::memory_order_acquire)) &&
           versions_->key_equals(entry, place.version_index, key);
  }
  [[nodiscard]] bool is_present(candidate place, const block_key& reduced,
                                std::span<const std::byte> key) const noexcept;
  [[nodiscard]] bool is_present(const block_key& reduced, std::span<const std::byte> key) const noexcept;
  [[nodiscard]] bool pin_moved(candidate& place, std::span<const std::byte> key, std::uint32_t group,
                               std::uint32_t slot) const noexcept;
  struct pin_outcome {
    std::size_t held = 0;
    bool out_of_slots = false;
  };
  /// Pins keys[first, …) at the places `located` into out[first, …), up to the first key that is gone or has no slot.
  [[nodiscard]] pin_outcome pin_located(std::span<candidate> located, key_batch keys, std::size_t first,
                                        std::uint32_t group, std::span<pin> out) const noexcept;
  void raise_high_water(std::uint32_t slots) const noexcept;
  class key_walk;

  index_reader index_;
  hint_reader hints_;
  const version_table* versions_;
  session_memory session_;
  pin_slots* slots_;
};

}  // namespace cenote::memory
