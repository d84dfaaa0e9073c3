// The choice of parts of a key: by rank of their storage, of each only the specs that those in front of it lack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/manager/index/lookup_answer.hpp"

namespace cenote::manager {

/// The parts of one key, which come in any order, at the end of a vector that has those of the keys before. At most 64
/// are kept, as each has a spec that those in front of it lack; a part that has none never gets one by a further part.
class part_choice {
 public:
  part_choice(const read_order& order, std::vector<found_part>& parts) noexcept
      : order_(order), parts_(parts), begin_(parts.size()) {}

  /// Forgets the parts of this key.
  void clear() noexcept {
    parts_.resize(begin_);
    specs_ = 0;
  }
  [[nodiscard]] bool is_usable(std::uint8_t storage) const noexcept {
    return order_.rank[storage] != read_order::unusable;
  }
  /// A part with all its specs, in a usable storage. Parts of equal rank stay in the order in which they come.
  void add(std::uint64_t extent, std::uint64_t specs, std::uint32_t wrote_at, std::uint16_t position,
           std::uint8_t storage, std::uint32_t checksums = no_checksums) {
    parts_.emplace_back(extent, specs, wrote_at, position, storage, checksums);  // field by field where it stays
    if (specs_ == 0 && specs != 0) [[likely]] {
      specs_ = specs;
    } else {
      sort_last();
    }
  }
  /// The specs of all parts.
  [[nodiscard]] std::uint64_t specs() const noexcept { return specs_; }
  /// Ends the key: of each part only those specs stay that the ones in front of it lack.
  found_key finish(std::uint32_t record) noexcept {
    const std::size_t count = parts_.size() - begin_;
    if (count > 1) separate();
    const found_key key{
        .record = record, .first_part = static_cast<std::uint32_t>(begin_), .parts = static_cast<std::uint32_t>(count)};
    begin_ = parts_.size();
    specs_ = 0;
    return key;
  }

 private:
  void sort_last();
  void separate() noexcept;

  const read_order& order_;
  std::vector<found_part>& parts_;
  std::size_t begin_;
  std::uint64_t specs_ = 0;
};

}  // namespace cenote::manager
