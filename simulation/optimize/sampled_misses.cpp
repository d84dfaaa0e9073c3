#include "simulation/optimize/sampled_misses.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/key_sample.hpp"

namespace cenote::simulation {

namespace {

constexpr std::size_t group_count = 64;
constexpr std::uint64_t group_salt = 0xbb67ae8584caa73bULL;
constexpr unsigned most_bits = 40;  // distances from 2^40 on are one bin
constexpr double most_distance = static_cast<double>(std::uint64_t{1} << most_bits);

/// Bins that are exact below 2^(bits + 1), and from there on 2^bits for each power of two.
template <unsigned bits>
struct distance_bins {
  static constexpr std::size_t last = ((most_bits - bits) << bits) + (std::size_t{1} << bits);
  static constexpr std::size_t count = last + 1;

  static std::size_t number(double distance) noexcept {
    if (!(distance < most_distance)) return last;
    const auto whole = static_cast<std::uint64_t>(distance);
    const auto width = static_cast<unsigned>(std::bit_width(whole));
    if (width <= bits + 1) return whole;
    const unsigned shift = width - bits - 1;
    return (std::size_t{shift} << bits) + (whole >> shift);
  }
  static double lower(std::size_t number) noexcept {
    if (number < (std::size_t{2} << bits)) return static_cast<double>(number);
    const std::size_t shift = (number >> bits) - 1;
    return std::ldexp(static_cast<double>(number - (shift << bits)), static_cast<int>(shift));
  }
  /// The share of the bin that lies from `capacity` on, if that is in it.
  static double share_beyond(std::size_t number, double capacity) noexcept {
    if (number >= last) return 1;
    const double end = lower(number + 1);
    return (end - capacity) / (end - lower(number));
  }
};

using fine = distance_bins<7>;
using coarse = distance_bins<3>;

}  // namespace

sampled_misses::sampled_misses() : totals_(fine::count), groups_(coarse::count * group_count) {}

std::size_t sampled_misses::bin_of(double distance) noexcept {
  return fine::number(distance);
}

std::size_t sampled_misses::coarse_bin_of(double distance) noexcept {
  return coarse::number(distance);
}

void sampled_misses::add_sampled(double distance, double weight, double rate, std::uint64_t key) noexcept {
  const std::size_t group = mixed_bits(key ^ group_salt) % group_count;
  totals_[bin_of(distance)] += weight / rate;
  groups_[coarse_bin_of(distance) * group_count + group] += weight * std::sqrt(1 - rate) / rate;
}

void sampled_misses::scale(double factor) noexcept {
  for (double& each : totals_) each *= factor;
  for (double& each : groups_) each *= factor;
}

sampled_misses::sum sampled_misses::sum_beyond(double capacity) const noexcept {
  sum all;
  const std::size_t first = bin_of(capacity);
  const double beyond = fine::share_beyond(first, capacity);
  all.misses = misses_beyond(capacity);
  all.rounding = totals_[first] * std::sqrt(beyond * (1 - beyond));

  std::array<double, group_count> sums{};
  const std::size_t first_coarse = coarse_bin_of(capacity);
  for (std::size_t i = first_coarse; i < coarse::count; ++i) {
    const double share = i == first_coarse ? coarse::share_beyond(i, capacity) : 1;
    for (std::size_t group = 0; group < group_count; ++group) sums[group] += share * groups_[i * group_count + group];
  }
  double mean = 0;
  for (const double each : sums) mean += each / group_count;
  double squares = 0;
  for (const double each : sums) squares += (each - mean) * (each - mean);
  all.error = std::sqrt(squares * group_count / (group_count - 1));
  return all;
}

double sampled_misses::misses_beyond(double capacity) const noexcept {
  const std::size_t first = bin_of(capacity);
  double misses = 0;
  for (std::size_t i = first + 1; i < totals_.size(); ++i) misses += totals_[i];
  return misses + totals_[first] * fine::share_beyond(first, capacity);
}

std::size_t sampled_misses::bytes() const noexcept {
  return sizeof *this + (totals_.capacity() + groups_.capacity()) * sizeof(double);
}

}  // namespace cenote::simulation
