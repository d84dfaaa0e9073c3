// Finds slabs of an instance that a session has not mapped yet.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/slab_map.hpp"
#include "memory/version_table.hpp"

namespace cenote::client {

/// Reads the instance's directory. One thread at a time.
class slab_watch {
 public:
  slab_watch(const memory::version_table& versions, const slab_map& slabs) noexcept
      : versions_(&versions), slabs_(&slabs) {}

  /// Up to `limit` live slabs that are not mapped, those of the highest numbers first. A slab that stays unmapped comes
  /// again when all of them came and a second has passed. Nothing when the process has mapped so many that its
  /// descriptors would run out.
  [[nodiscard]] std::vector<std::uint32_t> unmapped(std::size_t limit, std::chrono::steady_clock::time_point now);

 private:
  [[nodiscard]] memory::slab_state state_of(std::uint32_t index) const noexcept;
  void find_range() noexcept;
  [[nodiscard]] std::vector<std::uint32_t> not_queried(std::size_t limit) const;

  const memory::version_table* versions_;
  const slab_map* slabs_;
  std::uint32_t oldest_ = 1;  ///< no slab with a lower number lives
  std::uint32_t latest_ = 0;  ///< the highest number of a slab that lived
  std::vector<std::uint32_t> queried_;
  std::chrono::steady_clock::time_point next_round_{};
};

}  // namespace cenote::client
