#include "actors/removal_tally.hpp"

namespace cenote {

std::optional<std::string> removal_tally::note(error_code code, const std::string& reason, std::uint64_t requests,
                                               time_point now) {
  if (code == error_code::ok) {
    done_ += requests;
    return std::nullopt;
  }
  (code == error_code::removal_pending ? pending_ : failed_) += requests;
  const auto count = line_.add(requests, now);
  if (!count) return std::nullopt;
  return std::to_string(*count) + " removals were answered as not done; the last one: " + reason;
}

blocks::store_counters removal_tally::added_to(blocks::store_counters counters) const noexcept {
  counters.removals_done += done_;
  counters.removals_pending += pending_;
  counters.removals_failed += failed_;
  return counters;
}

}  // namespace cenote
