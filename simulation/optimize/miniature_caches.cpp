#include "simulation/optimize/miniature_caches.hpp"

#include <algorithm>
#include <cmath>

#include "core/key_sample.hpp"

namespace cenote::simulation {

namespace {

constexpr unsigned place_shift = 32;
constexpr std::uint64_t all_places = std::uint64_t{1} << place_shift;

/// One block in how many a sample of `width` places has.
std::uint32_t thinning_of(std::uint64_t width) noexcept {
  const double thinning = std::round(static_cast<double>(all_places) / static_cast<double>(width));
  return static_cast<std::uint32_t>(std::min(thinning, 4294967295.0));
}

}  // namespace

const eviction::policy_info* miniature_caches::find_policy(std::string_view name) noexcept {
  return std::ranges::find(policy_names, name) == policy_names.end() ? nullptr : eviction::find_policy(name);
}

miniature_caches::miniature_caches(std::span<const eviction::policy_info* const> policies, const settings& setup)
    : salt_(setup.salt),
      width_(all_places),
      follows_sessions_(std::ranges::any_of(
          policies, [](const eviction::policy_info* each) { return each->use == eviction::policy_use::requests; })) {
  const std::uint32_t blocks = std::max(setup.part_blocks, fewest_part_blocks);
  const bool is_whole = setup.capacity <= std::uint64_t{blocks} * part_count;
  if (!is_whole) width_ = all_places * blocks / setup.capacity;
  parts_.reserve(part_count);
  for (std::size_t i = 0; i < (is_whole ? 1 : part_count); ++i) {
    parts_.emplace_back(policies).caches.resize(is_whole ? setup.capacity : blocks, thinning_of(width_));
  }
}

void miniature_caches::add(std::span<const std::uint64_t> chain, std::uint32_t now) {
  if (chain.empty()) return;
  if (width_ == all_places) return serve(parts_.front(), chain, {.ids = chain, .resident = {}}, now);
  // In a part alone sessions would begin with the first block of the sample.
  if (follows_sessions_) turns_.begin(chain, now, [](std::size_t /*position*/) { return false; });
  const eviction::request whole{.ids = chain, .resident = {}, .turns = &turns_};
  for (sample_part& each : parts_) each.sample.clear();
  const std::uint64_t end = width_ * part_count;
  for (const std::uint64_t key : chain) {
    // Not sample_place(): tables of policies spread keys by it, and those of a part would lie side by side.
    const std::uint64_t place = mixed_bits(key + salt_) >> place_shift;
    if (place < end) parts_[place / width_].sample.push_back(key);
  }
  for (sample_part& each : parts_) {
    if (!each.sample.empty()) serve(each, each.sample, whole, now);
  }
}

void miniature_caches::serve(sample_part& one, std::span<const std::uint64_t> sample, const eviction::request& whole,
                             std::uint32_t now) {
  const auto saved = one.caches.serve(sample, whole, now);
  for (std::size_t policy = 0; policy < saved.size(); ++policy) one.misses[policy] += sample.size() - saved[policy];
}

miniature_caches::estimate miniature_caches::misses_of(std::size_t policy) const noexcept {
  if (width_ == all_places) return {.misses = static_cast<double>(parts_.front().misses[policy])};
  double sum = 0;
  for (const sample_part& each : parts_) sum += static_cast<double>(each.misses[policy]);
  const double mean = sum / part_count;
  double squares = 0;
  for (const sample_part& each : parts_) {
    const double apart = static_cast<double>(each.misses[policy]) - mean;
    squares += apart * apart;
  }
  constexpr double many = part_count;
  return {.misses = sum / rate(), .error = std::sqrt(squares * many / (many - 1)) / rate()};
}

double miniature_caches::rate() const noexcept {
  return static_cast<double>(width_ * parts_.size()) / static_cast<double>(all_places);
}

}  // namespace cenote::simulation
