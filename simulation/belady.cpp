#include "simulation/belady.hpp"

#include <bit>

namespace cenote::simulation {

namespace {
constexpr unsigned word_bits = 64;
}

position_set::position_set(std::uint32_t bound) {
  std::size_t words = bound;
  do {
    words = (words + word_bits - 1) / word_bits;
    levels_.emplace_back(words);
  } while (words > 1);
}

void position_set::insert(std::uint32_t position) noexcept {
  for (auto& level : levels_) {
    level[position / word_bits] |= std::uint64_t{1} << (position % word_bits);
    position /= word_bits;
  }
}

void position_set::erase(std::uint32_t position) noexcept {
  for (auto& level : levels_) {
    std::uint64_t& word = level[position / word_bits];
    word &= ~(std::uint64_t{1} << (position % word_bits));
    if (word != 0) return;
    position /= word_bits;
  }
}

std::optional<std::uint32_t> position_set::largest() const noexcept {
  if (levels_.back().empty() || levels_.back()[0] == 0) return std::nullopt;
  std::uint32_t at = 0;
  for (std::size_t level = levels_.size(); level-- > 0;) {
    at = at * word_bits + static_cast<std::uint32_t>(std::bit_width(levels_[level][at]) - 1);
  }
  return at;
}

belady::belady(std::span<const std::uint32_t> next_use, std::uint32_t capacity)
    : next_use_(next_use),
      capacity_(capacity),
      future_uses_(static_cast<std::uint32_t>(next_use.size())),
      block_at_(next_use.size(), eviction::block_links::none) {}

bool belady::should_admit(std::uint64_t /*id*/, std::uint32_t /*now*/) {
  const std::uint32_t next = next_use_[position_];
  const bool farther = size_ >= capacity_ && unused_.empty() && next > future_uses_.largest().value_or(never);
  if (next != never && !farther) return true;
  ++position_;
  return false;
}

void belady::insert(std::uint32_t block, std::uint64_t /*id*/, std::uint32_t /*now*/) {
  place(block, next_use_[position_++]);
  ++size_;
}

void belady::touch(std::uint32_t block, std::uint32_t /*now*/) {
  displace(block);
  place(block, next_use_[position_++]);
}

void belady::forget(std::uint32_t block) {
  displace(block);
  --size_;
}

std::optional<std::uint32_t> belady::victim() {
  if (!unused_.empty()) return unused_.back();
  const auto farthest = future_uses_.largest();
  if (!farthest) return std::nullopt;
  return block_at_[*farthest];
}

void belady::place(std::uint32_t block, std::uint32_t next) {
  next_.make(block) = next;
  if (next != never) {
    future_uses_.insert(next);
    block_at_[next] = block;
  } else {
    unused_at_.make(block) = static_cast<std::uint32_t>(unused_.size());
    unused_.push_back(block);
  }
}

void belady::displace(std::uint32_t block) {
  if (const std::uint32_t next = next_[block]; next != never) {
    future_uses_.erase(next);
    return;
  }
  const std::uint32_t last = unused_.back();
  unused_[unused_at_[block]] = last;
  unused_at_[last] = unused_at_[block];
  unused_.pop_back();
}

}  // namespace cenote::simulation
