// Blocks that a router expects a pod to have soon, since it has just sent the prompt there.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "services/indexer/feed/feed_options.hpp"
#include "services/indexer/forest/forest.hpp"

namespace cenote::indexer {

/// Holders of their own, in generations: one of six ends each fifth of the time that expected blocks count, in O(1) a
/// pod. The writer's alone.
class expected_blocks {
 public:
  explicit expected_blocks(forest& index) noexcept : index_(index) {}

  void set_ttl(std::chrono::milliseconds ttl) noexcept { ttl_ = ttl; }

  /// The pod may have the blocks of these keys soon. `ttl` is at most the one that was set. False: a bound is reached.
  bool add(std::string_view pod, model_number model, std::span<const std::uint64_t> keys, feed_time now,
           std::chrono::milliseconds ttl);
  /// The pod's events name these blocks: the events count from now on. Cheap where nothing is expected.
  void end(std::string_view pod, model_number model, std::span<const block_number> blocks) noexcept;
  /// Nothing is expected of the pod any more.
  void end(std::string_view pod, model_number model) noexcept;
  /// Ends generations whose time is over.
  void advance(feed_time now);

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

 private:
  static constexpr std::size_t generations = 6;
  static_assert(generations < most_media);

  [[nodiscard]] std::chrono::nanoseconds width() const noexcept;

  forest& index_;
  std::chrono::milliseconds ttl_{0};
  std::int64_t tick_ = 0;
  std::array<std::vector<holder>, generations> holders_;  ///< by generation
  std::size_t count_ = 0;
};

}  // namespace cenote::indexer
