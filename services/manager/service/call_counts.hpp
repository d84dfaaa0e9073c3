// Counts and times of the calls of all clients.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>

#include "core/histogram.hpp"
#include "transport/manager/answer_code.hpp"
#include "transport/manager/rpc_table.hpp"

namespace cenote::manager {

/// Answers and times by call, keys of lookups and those that were there. Thread-safe; a call's lock is held for the
/// addition, and for a copy where a page is made.
class call_counts {
 public:
  /// The answers of one call.
  struct call_record {
    std::map<answer_code, std::uint64_t> answers{};
    histogram times{};  ///< ns, from the body to the answer's last byte
  };

  void note(rpc call, answer_code code, std::chrono::nanoseconds time);
  void note_lookup(std::uint64_t keys, std::uint64_t hits) noexcept {
    keys_.fetch_add(keys, std::memory_order_relaxed);
    hits_.fetch_add(hits, std::memory_order_relaxed);
  }

  [[nodiscard]] call_record record_of(rpc call) const;
  [[nodiscard]] std::uint64_t keys() const noexcept { return keys_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t hits() const noexcept { return hits_.load(std::memory_order_relaxed); }

 private:
  struct guarded_record {
    mutable std::mutex mutex;
    call_record record;
  };

  std::array<guarded_record, rpc_rows.size()> records_;
  std::atomic<std::uint64_t> keys_{0}, hits_{0};
};

/// The time of one call, from its begin to its answer.
class call_timer {
 public:
  call_timer(call_counts& counts, rpc call) noexcept : counts_(&counts), call_(call) {}

  void end(answer_code code) const { counts_->note(call_, code, std::chrono::steady_clock::now() - begin_); }

 private:
  call_counts* counts_;
  rpc call_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace cenote::manager
