// Who goes next: the interface of every eviction policy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace cenote::eviction {

/// Links of intrusive lists over block numbers, shared by the policies of a tier so that a block costs 8 bytes once.
class block_links {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct link {
    std::uint32_t previous = none;
    std::uint32_t next = none;
  };
  [[nodiscard]] link& operator[](std::uint32_t block) noexcept { return links_[block]; }
  /// Makes room for block numbers below `n`.
  void cover(std::uint32_t n) {
    if (n > links_.size()) links_.resize(n);
  }

 private:
  std::vector<link> links_;
};

/// Orders the blocks of one pool. A plain object: no thread, no clock. All calls are O(1). Not thread-safe.
/// Callers touch a request's blocks from its tail to its head, so that a parent is never older than its child.
class policy {
 public:
  policy() = default;
  policy(const policy&) = delete;
  policy& operator=(const policy&) = delete;
  virtual ~policy() = default;

  /// `block` became evictable. `now` in tenths of a second.
  virtual void admit(std::uint32_t block, std::uint32_t now) = 0;
  /// `block`, admitted before, was used.
  virtual void touch(std::uint32_t block, std::uint32_t now) = 0;
  /// `block`, admitted before, is gone.
  virtual void forget(std::uint32_t block) = 0;
  /// The block to evict next; it stays admitted until forget(). Nothing when empty.
  [[nodiscard]] virtual std::optional<std::uint32_t> victim() const = 0;
  [[nodiscard]] virtual std::uint32_t size() const noexcept = 0;
};

/// The policy called `name`; unknown names are refused with the known ones. `links` must outlive it.
[[nodiscard]] result<std::unique_ptr<policy>> make_policy(std::string_view name, block_links& links);

}  // namespace cenote::eviction
