// The blank blocks in one session's hands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cenote::blocks {

struct granted_block {
  std::uint32_t grant_version = 0;
  std::uint32_t slot = 0;
  std::uint64_t stride = 0;
};

/// By block. Memory of a block that has left is kept for the next one: grants come and go with every put, and a session
/// has few at a time. Not thread-safe.
class granted_blocks {
 public:
  using map = std::unordered_map<std::uint64_t, granted_block>;

  void add(std::uint64_t ref_bits, const granted_block& grant) {
    if (spare_.empty()) {
      blocks_.emplace(ref_bits, grant);
      return;
    }
    map::node_type place = std::move(spare_.back());
    spare_.pop_back();
    place.key() = ref_bits;
    place.mapped() = grant;
    blocks_.insert(std::move(place));
  }
  void erase(map::const_iterator grant) { spare_.push_back(blocks_.extract(grant)); }

  [[nodiscard]] map::const_iterator find(std::uint64_t ref_bits) const { return blocks_.find(ref_bits); }
  [[nodiscard]] bool contains(std::uint64_t ref_bits) const { return blocks_.contains(ref_bits); }
  [[nodiscard]] map::const_iterator begin() const noexcept { return blocks_.begin(); }
  [[nodiscard]] map::const_iterator end() const noexcept { return blocks_.end(); }
  [[nodiscard]] std::size_t size() const noexcept { return blocks_.size(); }
  [[nodiscard]] bool empty() const noexcept { return blocks_.empty(); }

 private:
  map blocks_;
  std::vector<map::node_type> spare_;
};

}  // namespace cenote::blocks
