// Requests before replicas that serve one prefill at a time, and the fewest replicas that keep a promise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace cenote::simulation {

struct queue_request {
  double arrival = 0;  ///< seconds
  double service = 0;  ///< seconds
};

/// Times to first token: waiting and service.
class queue_times {
 public:
  /// `requests` in the order in which they come, to the replica that is free first, the lowest number of equals.
  /// `replicas` is at least 1; more than there are requests are idle. O(requests · log replicas).
  queue_times(std::span<const queue_request> requests, std::size_t replicas);

  /// The nearest rank: the smallest time that at least `percent` of all are not above; 0 without requests.
  [[nodiscard]] double percentile(double percent) const;
  /// In the order of the requests.
  [[nodiscard]] std::span<const double> times() const noexcept { return times_; }
  /// All service, in seconds.
  [[nodiscard]] double busy() const noexcept { return busy_; }
  /// The share of the replicas' time, from the first arrival to the last end, that is service.
  [[nodiscard]] double utilisation() const noexcept;

 private:
  std::vector<double> times_;
  std::vector<double> sorted_;
  double busy_ = 0;
  double span_ = 0;
  std::size_t replicas_ = 1;
};

/// The value of nearest rank among `sorted`; 0 where it is empty.
[[nodiscard]] double nearest_rank(std::span<const double> sorted, double percent) noexcept;

/// A percentile of the times to first token that must not be longer.
struct ttft_bound {
  double percent = 0;
  double seconds = 0;
};

/// Bounds of times to first token that must all hold.
struct service_level {
  std::vector<ttft_bound> bounds;

  [[nodiscard]] bool holds(const queue_times& times) const;
};

/// "ttft_p90=2s", or several with commas. Errors: invalid_argument.
[[nodiscard]] result<service_level> parse_service_level(std::string_view text);

/// The fewest replicas that keep `level`, by bisection: a replica more makes no request wait longer. Nothing where it
/// does not hold even with one for each request.
[[nodiscard]] std::optional<std::size_t> fewest_replicas(std::span<const queue_request> requests,
                                                         const service_level& level);

}  // namespace cenote::simulation
