#include "tiers/eviction/session_turns.hpp"

#include <algorithm>
#include <bit>

namespace cenote::eviction {

namespace {

// Tenths of a second.
constexpr std::uint32_t first_bonus = 1'200;
constexpr std::uint32_t smallest_bonus = 50;
constexpr std::uint32_t smallest_delay = 10;
constexpr std::uint32_t tip_lifetime = 15'360;
constexpr std::size_t most_tips = 65'536;
constexpr int fewest_later_turns = 4;  // of 64 requests

}  // namespace

session_turns::session_turns() noexcept : delay_(first_bonus) {
  tips_.bound(most_tips);
}

std::uint32_t session_turns::begin(std::span<const std::uint64_t> blocks, std::uint32_t time,
                                   const branch_test& branches) {
  clock_.tick(time);
  const std::uint32_t now = clock_.at(time);
  while (!tips_.empty() && now - tips_.oldest()->note.time > tip_lifetime) tips_.drop_oldest();
  turn_ = find_turn(blocks, now, branches);
  later_turns_ = later_turns_ << 1U | (turn_ > 1 ? 1U : 0U);
  if (!blocks.empty() && !branches(blocks.size() - 1)) leave_tip(blocks.back(), now);
  return turn_;
}

void session_turns::import_history(const session_turns& predecessor) {
  tips_ = predecessor.tips_;
  delay_ = predecessor.delay_;
  later_turns_ = predecessor.later_turns_;
}

std::uint32_t session_turns::bonus() const noexcept {
  return std::max(delay_.value(), smallest_bonus);
}

bool session_turns::sees_sessions() const noexcept {
  return std::popcount(later_turns_) >= fewest_later_turns;
}

std::uint32_t session_turns::find_turn(std::span<const std::uint64_t> blocks, std::uint32_t now,
                                       const branch_test& branches) {
  for (std::size_t at = blocks.size(); at-- > 0;) {
    const tip* const found = find_tip(blocks, at, branches);
    if (found == nullptr) continue;
    const std::uint32_t delay = now - found->time;
    if (delay >= smallest_delay) delay_.add(delay);
    return found->turn + 1;
  }
  return 1;
}

/// The tip at this place of the request, if there is one and it is no common beginning: neither a block of which that
/// is known nor a tip that different blocks came after, unless the request ends there, too, and so repeats another one.
const session_turns::tip* session_turns::find_tip(std::span<const std::uint64_t> blocks, std::size_t position,
                                                  const branch_test& branches) {
  tip* const found = tips_.find(blocks[position]);
  if (found == nullptr || branches(position)) return nullptr;
  if (position + 1 == blocks.size()) return found;
  found->branches |= found->next != 0 && found->next != blocks[position + 1];
  found->next = blocks[position + 1];
  return found->branches ? nullptr : found;
}

void session_turns::leave_tip(std::uint64_t block, std::uint32_t now) {
  tip left = tips_.take(block).value_or(tip{});
  left.time = now;
  left.turn = turn_;
  tips_.push(block, left);
}

}  // namespace cenote::eviction
