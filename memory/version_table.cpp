#include "memory/version_table.hpp"

#include <cstring>

namespace cenote::memory {

namespace {

constexpr std::size_t word_bytes = 8;
constexpr std::size_t head_bytes = 48;

/// The `i`-th 8-byte word of a key, padded with zeros.
std::uint64_t key_word(std::span<const std::byte> key, std::size_t i) noexcept {
  std::uint64_t word = 0;
  const std::size_t from = i * word_bytes;
  if (from + word_bytes <= key.size()) {
    std::memcpy(&word, key.data() + from, word_bytes);
  } else if (from < key.size()) {
    std::memcpy(&word, key.data() + from, key.size() - from);
  }
  return word;
}

}  // namespace

bool version_table::other_key_equals(std::uint32_t ordinal, std::span<const std::byte> key) const noexcept {
  const version_entry& hot = entry(ordinal);
  const std::size_t words = (key.size() + word_bytes - 1) / word_bytes;
  std::uint64_t difference = 0;
  for (std::size_t i = 0; i < words && i < 6; ++i) {
    difference |= hot.key[i].load(std::memory_order_relaxed) ^ key_word(key, i);
  }
  for (std::size_t i = 6; i < words; ++i) {
    difference |= tail(ordinal).key[i - 6].load(std::memory_order_relaxed) ^ key_word(key, i);
  }
  return difference == 0;
}

void version_table::set_idle_since(std::uint64_t when) const noexcept {
  shared_assign(header().spare[0], when, "instance.idle"_point);
}

void version_table::retire() const noexcept {
  shared_store(header().retired, 1, std::memory_order_release, "instance.retired"_point);
}

full_key version_table::key(std::uint32_t ordinal) const noexcept {
  full_key key;
  const version_entry& hot = entry(ordinal);
  const std::uint64_t size = hot.key_size.load(std::memory_order_relaxed);
  if (size > max_key_bytes) return key;
  key.size = static_cast<std::uint8_t>(size);
  for (std::size_t i = 0; i * word_bytes < size; ++i) {
    const std::uint64_t word =
        i < 6 ? hot.key[i].load(std::memory_order_relaxed) : tail(ordinal).key[i - 6].load(std::memory_order_relaxed);
    std::memcpy(key.bytes.data() + i * word_bytes, &word, word_bytes);
  }
  return key;
}

void version_table::set_key(std::uint32_t ordinal, const full_key& key) const noexcept {
  version_entry& hot = entry(ordinal);
  std::array<std::uint64_t, 8> words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = key_word(key.view(), i);
  shared_words(hot.key, words.data(), 6, "versions.key"_point);
  // Else the tail's pages stay untouched.
  if (key.size > head_bytes) shared_words(tail(ordinal).key, words.data() + 6, 2, "versions.key_tail"_point);
  shared_store(hot.key_size, key.size, std::memory_order_relaxed, "versions.key_size"_point);
}

}  // namespace cenote::memory
