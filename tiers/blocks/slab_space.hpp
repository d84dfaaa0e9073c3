// Slabs: their numbers, their memory, and what is asked of the provisioner.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiers/blocks/slab_request.hpp"
#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class eviction_order;

/// Requests slabs, takes them over and gives them up. Knows nothing of the blocks in them.
class slab_space {
 public:
  slab_space(state& state, eviction_order& order) noexcept : state_(state), order_(order) {}

  bool slab_fits(const pool& into) const noexcept;
  bool ask_slab(pool& into, boot_time now);
  [[nodiscard]] bool make_index_room(const instance& instance, std::uint64_t more) const;
  bool memory_is_short(boot_time now) noexcept;
  static void renumber_slabs(instance& instance) noexcept;
  /// The memory of all slabs, each of which stays where it is until it is handed out with the request to drop it.
  [[nodiscard]] std::vector<std::span<std::byte>> slab_memory() const;
  [[nodiscard]] std::vector<slab_request> take_requests();
  slab& adopt_slab(instance& instance, const slab_description& what, memory::slab_mapping memory);
  /// False: its instance is not there any more.
  bool add_slab(const slab_description& what, memory::slab_mapping memory);
  /// The slab could not be made: its place is free again, and no other is asked for until `retry_at`.
  void slab_failed(const slab_description& what, boot_time retry_at);
  /// The keeper has forgotten the slab: its numbers may be used again.
  void slab_dropped(const slab_description& what);
  void drop_slab(slab& victim);
  void ask(slab_request request) { requests_.push_back(std::move(request)); }

 private:
  /// Bytes of slabs that may exist, trailers included.
  [[nodiscard]] std::uint64_t memory_limit() const noexcept;
  void blank_records(std::uint32_t first, std::uint32_t count);

  state& state_;
  eviction_order& order_;
  std::vector<slab_request> requests_;
  std::optional<boot_time> no_memory_until_;
};

}  // namespace cenote::blocks
