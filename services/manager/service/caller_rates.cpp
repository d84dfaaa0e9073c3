#include "services/manager/service/caller_rates.hpp"

#include <algorithm>

namespace cenote::manager {

caller_rates::buckets& caller_rates::buckets_of(const std::string& caller, time_point now) {
  if (buckets* const entry = callers_.find(caller); entry != nullptr) return *entry;
  return callers_.put(caller,
                      {.requests = token_bucket(limits_.requests, now), .keys = token_bucket(limits_.keys, now)});
}

std::chrono::nanoseconds caller_rates::enter(const std::string& caller, time_point now) {
  if (limits_.requests == 0 && limits_.keys == 0) return {};
  const std::lock_guard lock(mutex_);
  buckets& entry = buckets_of(caller, now);
  std::chrono::nanoseconds delay{};
  if (limits_.requests != 0) delay = entry.requests.delay(now);
  if (limits_.keys != 0) delay = std::max(delay, entry.keys.delay(now));
  if (delay == delay.zero() && limits_.requests != 0) entry.requests.take(1, now);
  return delay;
}

void caller_rates::charge_keys(const std::string& caller, std::size_t keys, time_point now) {
  if (limits_.keys == 0 || keys == 0) return;
  const std::lock_guard lock(mutex_);
  buckets_of(caller, now).keys.take(static_cast<double>(keys), now);
}

}  // namespace cenote::manager
