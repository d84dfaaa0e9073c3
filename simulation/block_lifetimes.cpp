#include "simulation/block_lifetimes.hpp"

namespace cenote::simulation {

std::optional<std::uint32_t> block_lifetimes::next_ended(std::uint64_t now_ms) {
  while (!queue_.empty() && queue_.front().ms <= now_ms) {
    const scheduled_end first = queue_.front();
    queue_.pop_front();
    if (ends_[first.block] != first.ms) continue;  // it was used since
    ends_[first.block] = no_end;
    return first.block;
  }
  return std::nullopt;
}

void block_lifetimes::begin(std::uint32_t block, std::uint64_t now_ms) {
  const std::uint64_t ms = now_ms + rule_.ms;
  if (ends_[block] == ms) return;
  ends_[block] = ms;
  queue_.push_back({.ms = ms, .block = block});
}

void block_lifetimes::use(std::uint32_t block, std::uint64_t now_ms) {
  if (rule_.start == lifetime_start::last_use) begin(block, now_ms);
}

}  // namespace cenote::simulation
