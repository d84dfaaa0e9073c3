#include "core/machine_choice.hpp"

#include <atomic>

namespace cenote {

namespace {

// The choice of this process. Each word is valid alone, and its numbers are looked up in tables that never change:
// relaxed loads and stores are enough, and no reader waits.
constinit std::array<std::atomic<std::uint64_t>, std::tuple_size_v<choice_words>> current{};

constexpr std::uint64_t word(std::uint8_t routine, std::uint8_t checksum, std::uint32_t least_bytes) noexcept {
  return routine | std::uint64_t{checksum} << 8 | std::uint64_t{least_bytes} << 32;
}

}  // namespace

choice_words words_of(const machine_choice& choice) noexcept {
  const auto copy = [](const copy_choice& each) {
    return each.routine == 0 ? 0 : word(each.routine, 0, each.least_bytes);
  };
  return {copy(choice.copies[0]), copy(choice.copies[1]), word(choice.hashed_copy, choice.checksum, 0)};
}

machine_choice choice_in(const choice_words& words) noexcept {
  const auto copy = [](std::uint64_t each) { return copy_choice{routine_in(each), least_bytes_in(each)}; };
  return {.copies = {copy(words[0]), copy(words[1])},
          .hashed_copy = routine_in(words[checksum_word]),
          .checksum = checksum_in(words[checksum_word])};
}

void use_choice(const choice_words& words) noexcept {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool changes = words[i] != 0 && words[i] != current[i].load(std::memory_order_relaxed);
    if (changes) current[i].store(words[i], std::memory_order_relaxed);
  }
}

std::uint64_t word_in_use(std::size_t place) noexcept {
  return current[place].load(std::memory_order_relaxed);
}

choice_words words_in_use() noexcept {
  choice_words words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = word_in_use(i);
  return words;
}

}  // namespace cenote
