#include "actors/removal_tally.hpp"

#include <utility>

namespace cenote {

std::optional<std::string> removal_tally::note(error_code code, const std::string& reason, std::uint64_t requests,
                                               time_point now) {
  constexpr std::chrono::seconds line_interval(10);
  if (code == error_code::ok) {
    done_ += requests;
    return std::nullopt;
  }
  (code == error_code::removal_pending ? pending_ : failed_) += requests;
  unlogged_ += requests;
  if (logged_ && now - *logged_ < line_interval) return std::nullopt;
  logged_ = now;
  return std::to_string(std::exchange(unlogged_, 0)) + " removals were answered as not done; the last one: " + reason;
}

blocks::store_counters removal_tally::added_to(blocks::store_counters counters) const noexcept {
  counters.removals_done += done_;
  counters.removals_pending += pending_;
  counters.removals_failed += failed_;
  return counters;
}

}  // namespace cenote
