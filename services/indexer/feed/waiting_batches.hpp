// Live batches that wait behind a replay, within a bound of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "services/indexer/feed/batch_payload.hpp"

namespace cenote::indexer {

/// Bytes that wait for all publishers together.
struct waiting_total {
  std::uint64_t limit = std::uint64_t{256} << 20U;
  std::uint64_t used = 0;
};

struct held_batch {
  std::uint64_t seq = 0;
  std::uint64_t fingerprint = 0;
  std::uint64_t order = 0;  ///< in which it came; see waiting_batches::order()
  batch_payload payload{};
};

/// In the order of their numbers, which is the order in which they came. Not thread-safe; `total`, if there is one,
/// outlives it.
class waiting_batches {
 public:
  static constexpr std::uint64_t overhead_bytes = 128;  ///< that each counts beside its payload

  waiting_batches(std::uint64_t limit, waiting_total* total) : limit_(limit), total_(total) {}
  waiting_batches(const waiting_batches&) = delete;
  waiting_batches& operator=(const waiting_batches&) = delete;
  ~waiting_batches() { clear(); }

  /// False if there is no room, or if a higher number waits already.
  [[nodiscard]] bool add(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload);
  /// Gives the first one away; there has to be one.
  [[nodiscard]] held_batch take_first();
  /// Drops those with numbers below `end`; returns their count.
  std::size_t drop_below(std::uint64_t end);
  /// Drops those that came when order() was at most `order`; returns their count.
  std::size_t drop_older(std::uint64_t order);
  void clear();

  [[nodiscard]] bool empty() const noexcept { return batches_.empty(); }
  [[nodiscard]] const held_batch& first() const noexcept { return batches_.front(); }
  /// Null: no such number waits. Logarithmic.
  [[nodiscard]] const held_batch* find(std::uint64_t seq) const noexcept;
  /// The number of batches that came so far.
  [[nodiscard]] std::uint64_t order() const noexcept { return order_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::uint64_t limit_;
  waiting_total* total_;
  std::deque<held_batch> batches_;
  std::uint64_t bytes_ = 0, order_ = 0;
};

}  // namespace cenote::indexer
