#include "simulation/optimize/queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <queue>
#include <string>
#include <utility>

#include "core/units.hpp"

namespace cenote::simulation {

namespace {

constexpr double rank_rounding = 1e-9;  // 99.9 · 1000 / 100 is 999, whatever the last digit is

/// A part of a service level, as "ttft_p90=2s".
result<ttft_bound> parse_bound(std::string_view text) {
  constexpr std::string_view beginning = "ttft_p";
  const auto refuse = [&](std::string_view reason) {
    return fail(error_code::invalid_argument, fmt::format("`{}` is no bound: {}; right is ttft_p90=2s", text, reason));
  };
  const std::size_t equals = text.find('=');
  if (!text.starts_with(beginning) || equals == std::string_view::npos) return refuse("a name and a time are needed");
  ttft_bound bound;
  const std::string_view digits = text.substr(beginning.size(), equals - beginning.size());
  const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), bound.percent);
  if (bad != std::errc() || end != digits.data() + digits.size() || !(bound.percent > 0) || bound.percent > 100) {
    return refuse("a percentile is above 0 and at most 100");
  }
  const auto time = parse_duration(text.substr(equals + 1));
  if (!time) return refuse(time.error().message());
  bound.seconds = std::chrono::duration<double>(*time).count();
  return bound;
}

}  // namespace

queue_times::queue_times(std::span<const queue_request> requests, std::size_t replicas)
    : replicas_(std::max<std::size_t>(1, replicas)) {
  using place = std::pair<double, std::size_t>;  // when it is free, and its number
  std::priority_queue<place, std::vector<place>, std::greater<>> free;
  const std::size_t used = std::min(replicas_, requests.size());
  for (std::size_t i = 0; i < used; ++i) free.emplace(0.0, i);
  double end = 0;
  times_.reserve(requests.size());
  for (const queue_request& each : requests) {
    const auto [free_at, number] = free.top();
    free.pop();
    const double done = std::max(free_at, each.arrival) + each.service;
    free.emplace(done, number);
    times_.push_back(done - each.arrival);
    busy_ += each.service;
    end = std::max(end, done);
  }
  if (!requests.empty()) span_ = end - requests.front().arrival;
  sorted_ = times_;
  std::ranges::sort(sorted_);
}

double queue_times::percentile(double percent) const {
  return nearest_rank(sorted_, percent);
}

double queue_times::utilisation() const noexcept {
  return span_ > 0 ? std::min(1.0, busy_ / (static_cast<double>(replicas_) * span_)) : 0;
}

double nearest_rank(std::span<const double> sorted, double percent) noexcept {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(percent * static_cast<double>(sorted.size()) / 100 - rank_rounding);
  const auto place = static_cast<std::size_t>(std::max(1.0, rank)) - 1;
  return sorted[std::min(place, sorted.size() - 1)];
}

bool service_level::holds(const queue_times& times) const {
  return std::ranges::all_of(bounds,
                             [&](const ttft_bound& each) { return times.percentile(each.percent) <= each.seconds; });
}

result<service_level> parse_service_level(std::string_view text) {
  service_level level;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto bound = parse_bound(text.substr(begin, end - begin));
    if (!bound) return std::unexpected(bound.error());
    level.bounds.push_back(*bound);
    begin = end + 1;
  }
  return level;
}

std::optional<std::size_t> fewest_replicas(std::span<const queue_request> requests, const service_level& level) {
  const auto keeps = [&](std::size_t replicas) { return level.holds(queue_times(requests, replicas)); };
  const std::size_t upper_end = std::max<std::size_t>(1, requests.size());
  std::size_t low = 1;
  std::size_t high = 1;
  while (!keeps(high)) {
    if (high == upper_end) return std::nullopt;
    low = high + 1;
    high = std::min(2 * high, upper_end);
  }
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (keeps(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace cenote::simulation
