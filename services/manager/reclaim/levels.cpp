#include "services/manager/reclaim/levels.hpp"

#include <algorithm>

namespace cenote::manager {

namespace {

constexpr double rounding = 1e-9;

std::int64_t part_of(std::int64_t capacity, double part) noexcept {
  constexpr double bound = 0x1.fffffffffffffp62;  // the largest one below 2^63, which the largest quotas round up to
  return static_cast<std::int64_t>(std::clamp(static_cast<double>(capacity) * part, 0.0, bound));
}

}  // namespace

bool is_over_share(const level_use& use, const level_terms& terms) noexcept {
  if (use.used <= 0) return false;
  if (use.capacity <= 0) return true;
  return static_cast<double>(use.used) / static_cast<double>(use.capacity) >= terms.used_percentage - rounding;
}

bool is_over_level(const level_use& use, const level_terms& terms) noexcept {
  return is_over_share(use, terms) || (terms.used_size > 0 && use.used >= terms.used_size);
}

std::int64_t goal_of(const level_use& use, const level_terms& terms) noexcept {
  if (use.capacity <= 0) return 0;
  std::int64_t level = part_of(use.capacity, terms.used_percentage);
  if (terms.used_size > 0) level = std::min(level, terms.used_size);
  const std::int64_t step = terms.step_size > 0 ? terms.step_size : part_of(use.capacity, terms.step_percentage);
  return std::max<std::int64_t>(0, level - step);
}

}  // namespace cenote::manager
