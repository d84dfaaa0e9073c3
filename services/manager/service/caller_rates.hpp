// The rates of requests and keys, by caller.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "services/manager/service/recent_map.hpp"
#include "services/manager/service/token_bucket.hpp"

namespace cenote::manager {

/// A second and caller; 0: any number.
struct rate_limits {
  std::uint32_t requests = 0;
  std::uint32_t keys = 0;
};

/// Two buckets a caller, for as many as came last. Thread-safe; without limits it takes no lock.
class caller_rates {
 public:
  using time_point = token_bucket::time_point;
  static constexpr std::size_t most_callers = 16'384;

  explicit caller_rates(const rate_limits& limits) : limits_(limits), callers_(most_callers) {}

  /// Counts a request of this caller; else the time until one is let in. A request waits for the keys of those before.
  [[nodiscard]] std::chrono::nanoseconds enter(const std::string& caller, time_point now);
  /// Counts the keys of a request that was let in.
  void charge_keys(const std::string& caller, std::size_t keys, time_point now);

 private:
  struct buckets {
    token_bucket requests;
    token_bucket keys;
  };

  [[nodiscard]] buckets& buckets_of(const std::string& caller, time_point now);

  const rate_limits limits_;
  std::mutex mutex_;
  recent_map<std::string, buckets> callers_;
};

}  // namespace cenote::manager
