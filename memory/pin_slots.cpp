#include "memory/pin_slots.hpp"

#include <algorithm>
#include <bit>

namespace cenote::memory {

namespace {

constexpr std::uint32_t word_bits = 64;

}  // namespace

pin_slots::pin_slots(std::uint32_t count)
    : free_((count + word_bits - 1) / word_bits, ~std::uint64_t{0}), count_(count) {
  if (count % word_bits != 0) free_.back() = (std::uint64_t{1} << (count % word_bits)) - 1;
}

std::size_t pin_slots::take(std::span<std::uint32_t> out) noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t taken = 0;
  std::size_t word = first_word_;
  for (; taken < out.size() && word < free_.size(); ++word) {
    std::uint64_t bits = free_[word];
    if (bits == ~std::uint64_t{0} && out.size() - taken >= word_bits) {  // the usual case, and a simple loop
      const auto first = static_cast<std::uint32_t>(word) * word_bits;
      for (std::uint32_t i = 0; i < word_bits; ++i) out[taken + i] = first + i;
      taken += word_bits;
      free_[word] = 0;
      continue;
    }
    while (bits != 0 && taken < out.size()) {
      out[taken++] = static_cast<std::uint32_t>(word) * word_bits + static_cast<std::uint32_t>(std::countr_zero(bits));
      bits &= bits - 1;
    }
    free_[word] = bits;
    if (bits != 0) break;
  }
  first_word_ = word;
  used_ += static_cast<std::uint32_t>(taken);
  if (taken != 0) high_water_ = std::max(high_water_, out[taken - 1] + 1);
  return taken;
}

void pin_slots::give_back(std::span<const std::uint32_t> slots) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < slots.size();) {  // slots that were taken together share their words
    const std::size_t word = slots[i] / word_bits;
    std::uint64_t bits = 0;
    for (; i < slots.size() && slots[i] / word_bits == word; ++i) bits |= std::uint64_t{1} << (slots[i] % word_bits);
    free_[word] |= bits;
    first_word_ = std::min(first_word_, word);
  }
  used_ -= static_cast<std::uint32_t>(slots.size());
}

std::uint32_t pin_slots::in_use() const noexcept {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::uint32_t pin_slots::high_water() const noexcept {
  const std::lock_guard lock(mutex_);
  return high_water_;
}

}  // namespace cenote::memory
