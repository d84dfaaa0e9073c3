// What the engines share: requests that wait for the device, and what is asked of a request.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "tiers/nvme/io.hpp"

namespace cenote::nvme {

/// Reads in their order, then writes in theirs. Not thread-safe.
class request_queue {
 public:
  void push(std::span<const io_request> batch);
  /// Ahead of all others of its kind.
  void push_front(const io_request& request) { of(request.kind).push_front(request); }
  [[nodiscard]] bool empty() const noexcept { return reads_.empty() && writes_.empty(); }
  /// The request that is next, or null; valid until the queue changes.
  [[nodiscard]] const io_request* front() const noexcept;
  [[nodiscard]] std::optional<io_request> pop();
  /// Takes all of `other`.
  void append(request_queue& other);

 private:
  [[nodiscard]] std::deque<io_request>& of(io_kind kind) { return kind == io_kind::read ? reads_ : writes_; }

  std::deque<io_request> reads_;
  std::deque<io_request> writes_;
};

/// 0, or EINVAL for a request that must not reach a file of `file_bytes`: empty, not whole sectors, outside the blocks.
[[nodiscard]] int refusal_of(const io_request& request, std::uint64_t file_bytes) noexcept;

}  // namespace cenote::nvme
