#include "commands/replay/content.hpp"

#include <algorithm>
#include <cstring>

namespace cenote::replay {

namespace {

constexpr std::size_t word_bytes = sizeof(std::uint64_t);
constexpr std::size_t line_bytes = 64;
constexpr std::size_t run_bytes = 4096;  // compared before the outcome is looked at: the loop has no branch then
constexpr unsigned sampled_places = 6;

// SplitMix64: distinct inputs, distinct outputs.
constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint64_t word_at(const std::byte* bytes) noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, word_bytes);
  return value;
}

}  // namespace

block_name key_of(std::uint64_t id) noexcept {
  const std::array<std::uint64_t, 2> words{mixed(id), mixed(id ^ 0x5bf03635d1f8a2c9ULL)};
  block_name key;
  std::memcpy(key.data(), words.data(), key.size());
  return key;
}

content::content(std::uint64_t id) noexcept : first_(mixed(mixed(id))), step_(mixed(first_) | 1) {}

void content::fill(std::span<std::byte> block) const noexcept {
  std::uint64_t value = first_;
  for (std::size_t at = 0; at + word_bytes <= block.size(); at += word_bytes, value += step_) {
    std::memcpy(block.data() + at, &value, word_bytes);
  }
}

std::optional<std::size_t> content::wrong_in(std::span<const std::byte> block, std::size_t first,
                                             std::size_t last) const noexcept {
  for (std::size_t begin = first; begin < last; begin += run_bytes) {
    const std::size_t end = std::min(begin + run_bytes, last);
    const std::uint64_t start = first_ + step_ * (begin / word_bytes);
    std::uint64_t difference = 0;
    std::uint64_t value = start;
    for (std::size_t at = begin; at < end; at += word_bytes, value += step_)
      difference |= word_at(block.data() + at) ^ value;
    if (difference == 0) continue;
    value = start;
    for (std::size_t at = begin; at < end; at += word_bytes, value += step_) {
      if (word_at(block.data() + at) != value) return at;
    }
  }
  return std::nullopt;
}

std::optional<std::size_t> content::first_wrong(std::span<const std::byte> block, verify_mode mode) const noexcept {
  const std::size_t size = block.size() / word_bytes * word_bytes;
  if (mode == verify_mode::none || size == 0) return std::nullopt;
  const std::size_t lines = (size + line_bytes - 1) / line_bytes;
  if (mode == verify_mode::all || lines <= sampled_places + 2) return wrong_in(block, 0, size);
  std::array<std::size_t, sampled_places + 2> places{0, lines - 1};
  for (unsigned i = 0; i < sampled_places; ++i) places[i + 2] = mixed(first_ + i) % lines;
  std::ranges::sort(places);
  for (const std::size_t place : places) {
    if (const auto wrong = wrong_in(block, place * line_bytes, std::min(place * line_bytes + line_bytes, size)))
      return wrong;
  }
  return std::nullopt;
}

}  // namespace cenote::replay
