// The choice of parts of a key: by rank of their storage, of each only the specs that those in front of it lack.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "services/manager/index/lookup_answer.hpp"

namespace cenote::manager {

/// The parts of one key, which may come in any order. At most 64 are kept, as each has a spec that those in front of it
/// lack; a part that has none never gets one by a further part.
class part_choice {
 public:
  explicit part_choice(const read_order& order) noexcept : order_(order) {}

  void clear() noexcept {
    count_ = 0;
    specs_ = 0;
  }
  [[nodiscard]] bool is_usable(std::uint8_t storage) const noexcept {
    return order_.rank[storage] != read_order::unusable;
  }
  /// A part with all its specs, in a usable storage. Parts of equal rank stay in the order in which they come.
  void add(const found_part& part) noexcept {
    if (count_ == 0) [[likely]] {
      if (part.specs == 0) return;
      parts_[0] = part;
      count_ = 1;
      specs_ = part.specs;
      return;
    }
    insert(part);
  }

  /// The specs of all parts.
  [[nodiscard]] std::uint64_t specs() const noexcept { return specs_; }
  /// The parts by rank, no two with a spec in common.
  [[nodiscard]] std::span<const found_part> choose() noexcept {
    if (count_ > 1) separate();
    return std::span(parts_).first(count_);
  }

 private:
  static constexpr std::size_t most_parts = 64;

  void insert(const found_part& part) noexcept;
  void separate() noexcept;

  const read_order& order_;
  std::size_t count_ = 0;
  std::uint64_t specs_ = 0;
  std::array<found_part, most_parts + 1> parts_{};  ///< with all their specs
};

}  // namespace cenote::manager
