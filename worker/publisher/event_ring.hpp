// The last batches of all topics, for subscribers that missed some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

namespace cenote::publishing {

using shared_text = std::shared_ptr<const std::string>;

/// A batch as it was published.
struct numbered_batch {
  shared_text topic;
  std::uint64_t seq = 0;  ///< in the row of its topic
  shared_text payload;
};

struct ring_limits {
  std::size_t batches = 10'000;
  std::size_t bytes = std::size_t{64} << 20;  ///< of payloads
};

/// The oldest batches leave when there are too many. Places count all that were ever added. Not thread-safe.
class event_ring {
 public:
  explicit event_ring(ring_limits limits = {}) noexcept : limits_(limits) {}

  void add(numbered_batch batch);
  /// Forgets all batches of a topic; places stay.
  void forget(const shared_text& topic);
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  [[nodiscard]] std::uint64_t end() const noexcept { return first_ + batches_.size(); }
  /// `place` in [first, end). One without a topic was forgotten.
  [[nodiscard]] const numbered_batch& batch_at(std::uint64_t place) const { return batches_[place - first_]; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  ring_limits limits_;
  std::deque<numbered_batch> batches_;
  std::uint64_t first_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace cenote::publishing
