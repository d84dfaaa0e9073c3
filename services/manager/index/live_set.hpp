// The numbers in use, of which the n-th is found fast.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cenote::manager {

/// A set of numbers below a bound: a bit each, and a count for each 2^15 of them. One thread.
class live_set {
 public:
  /// Room for numbers below `count`. Throws std::bad_alloc.
  void reserve(std::size_t count) {
    const std::size_t groups = (count + group_size - 1) / group_size;
    if (groups <= counts_.size()) return;
    words_.reserve(groups * group_words);
    counts_.reserve(groups);
    words_.resize(groups * group_words, 0);
    counts_.resize(groups, 0);
  }
  void insert(std::uint32_t number) noexcept {
    words_[number / 64] |= std::uint64_t{1} << (number % 64);
    ++counts_[number / group_size];
  }
  void erase(std::uint32_t number) noexcept {
    words_[number / 64] &= ~(std::uint64_t{1} << (number % 64));
    --counts_[number / group_size];
  }
  [[nodiscard]] bool contains(std::uint32_t number) const noexcept {
    const std::size_t word = number / 64;
    return word < words_.size() && ((words_[word] >> (number % 64)) & 1U) != 0;
  }
  /// The number that has `rank` lower ones in the set; there must be more than `rank`.
  [[nodiscard]] std::uint32_t select(std::size_t rank) const noexcept {
    std::size_t group = 0;
    for (; rank >= counts_[group]; ++group) rank -= counts_[group];
    std::size_t word = group * group_words;
    for (; rank >= ones(word); ++word) rank -= ones(word);
    std::uint64_t bits = words_[word];
    for (; rank > 0; --rank) bits &= bits - 1;
    return static_cast<std::uint32_t>(word * 64 + static_cast<unsigned>(std::countr_zero(bits)));
  }
  /// The first number that is not below `number`, else `bound`, which all in the set are below.
  [[nodiscard]] std::uint32_t next(std::uint32_t number, std::uint32_t bound) const noexcept {
    for (std::size_t word = number / 64; word < words_.size(); ++word) {
      const std::uint64_t bits =
          word == number / 64 ? words_[word] & (~std::uint64_t{0} << (number % 64)) : words_[word];
      if (bits != 0) return static_cast<std::uint32_t>(word * 64 + static_cast<unsigned>(std::countr_zero(bits)));
    }
    return bound;
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return words_.capacity() * sizeof(std::uint64_t) + counts_.capacity() * sizeof(std::uint32_t);
  }

 private:
  static constexpr std::size_t group_size = std::size_t{1} << 15;
  static constexpr std::size_t group_words = group_size / 64;

  [[nodiscard]] std::size_t ones(std::size_t word) const noexcept {
    return static_cast<std::size_t>(std::popcount(words_[word]));
  }

  std::vector<std::uint64_t> words_{};
  std::vector<std::uint32_t> counts_{};
};

}  // namespace cenote::manager
