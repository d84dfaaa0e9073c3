// The routines by which this machine's bytes are copied and summed: measured once for each kind of machine by the node,
// which hands the choice to its clients in session memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cenote {

enum class copy_direction : std::uint8_t {
  from_blocks,  ///< shared memory to private memory of a process
  to_blocks     ///< the other way
};

struct copy_choice {
  std::uint8_t routine = 0;       ///< number of a copy_routine; 0: not chosen, memcpy
  std::uint32_t least_bytes = 0;  ///< smaller copies are memcpy's
  bool operator==(const copy_choice&) const = default;
};

struct machine_choice {
  std::array<copy_choice, 2> copies = {};  ///< by copy_direction
  std::uint8_t hashed_copy = 0;  ///< number of the copy_routine for pieces that were just hashed; 0: not chosen
  std::uint8_t checksum = 0;     ///< number of a checksum_variant; 0: not chosen, the widest
  bool operator==(const machine_choice&) const = default;
};

/// Encoding of a choice in session memory and in this process: a word for each direction, and one for checksums.
///
///   0         8          32            64
///   | routine | checksum | least bytes |
///
/// A word of 0 chooses nothing. Each word is valid alone, so words of two choices may be mixed.
using choice_words = std::array<std::uint64_t, 3>;

[[nodiscard]] choice_words words_of(const machine_choice& choice) noexcept;
[[nodiscard]] machine_choice choice_in(const choice_words& words) noexcept;

/// Makes this process copy and sum by `words`; a word of 0 leaves the present choice. Thread-safe, also beside copies.
/// Process-wide, since the choice is a property of the machine and not of a session or a node.
void use_choice(const choice_words& words) noexcept;
[[nodiscard]] choice_words words_in_use() noexcept;
[[nodiscard]] std::uint64_t word_in_use(std::size_t place) noexcept;

/// Fields of a word. Any value is valid: numbers are looked up among the routines that this processor can run.
[[nodiscard]] constexpr std::uint8_t routine_in(std::uint64_t word) noexcept {
  return static_cast<std::uint8_t>(word);
}
[[nodiscard]] constexpr std::uint8_t checksum_in(std::uint64_t word) noexcept {
  return static_cast<std::uint8_t>(word >> 8);
}
[[nodiscard]] constexpr std::uint32_t least_bytes_in(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word >> 32);
}
inline constexpr std::size_t checksum_word = 2;  ///< after those of the directions

}  // namespace cenote
