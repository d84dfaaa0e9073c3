// Shared words seen through store buffers: what a core of x86 (TSO) or a weaker one (PSO) may do to stores.
//
//    owner    reader 0   reader 1   writer 0   writer 1      a thread issues its stores in program order
//   [s s s]     [s]        [ ]       [s s]       [ ]         into its own buffer and reads through it
//      \         |          |         |          /           (its own newest store wins);
//       v        v          v         v         v
//   | version | key | content | record | entries | ... |     a store is visible when it leaves the buffer
//
// TSO: only the oldest store may leave. PSO: any store may leave unless an older one goes to the same word; a
// release store waits for everything older. A seq_cst fence waits for an empty buffer. Loads are in program
// order: what is found here is store-load and store-store reordering, not the reordering of two loads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cenote::model {

inline constexpr std::size_t block_count = 2;
inline constexpr std::size_t reader_count = 2;
inline constexpr std::size_t writer_count = 2;

/// The shared words, each an array of two; `word(version, 1)` is the second of its kind.
enum word_kind : std::uint8_t {
  version,      ///< per block: even > 0 published, odd not readable, 0 never
  key_beside,   ///< per block: the full key beside the version
  content,      ///< per block: stands for the bytes, equal to their key
  record,       ///< per block: the truth, never seen by clients
  entry_value,  ///< per index entry: 0 or (block, low version bits)
  entry_key,    ///< per index entry
  slot,         ///< per reader: 0 or block + 1
  grant,        ///< per writer: 0, block + 1, or `grant_refused`
  commit,       ///< per writer: 0 or 1
  word_kinds
};
inline constexpr std::size_t word_count = 2 * std::size_t{word_kinds};

constexpr std::uint8_t word(word_kind kind, std::size_t index) noexcept {
  return static_cast<std::uint8_t>(2U * kind + index);
}

enum class memory_order_model : std::uint8_t { tso, pso };

/// The stores of one thread that nobody else sees yet. Plain bytes: a state is hashed as memory.
struct store_buffer {
  static constexpr std::size_t capacity = 5;
  static constexpr std::uint8_t release_bit = 0x80;

  std::uint8_t size = 0;
  std::array<std::uint8_t, capacity> words{};  ///< word | release_bit
  std::array<std::uint8_t, capacity> values{};

  bool full() const noexcept { return size == capacity; }
  std::uint8_t word_at(std::size_t i) const noexcept { return words[i] & static_cast<std::uint8_t>(~release_bit); }

  void push(std::uint8_t to, std::uint8_t value, bool release) noexcept {
    words[size] = static_cast<std::uint8_t>(to | (release ? release_bit : 0U));
    values[size] = value;
    ++size;
  }

  /// May the i-th oldest store become visible now?
  bool may_leave(std::size_t i, memory_order_model order) const noexcept {
    if (i >= size) return false;
    if (i == 0) return true;
    if (order == memory_order_model::tso || (words[i] & release_bit) != 0) return false;
    for (std::size_t older = 0; older < i; ++older)
      if (word_at(older) == word_at(i)) return false;
    return true;
  }

  void remove(std::size_t i) noexcept {
    for (std::size_t j = i + 1; j < size; ++j) {
      words[j - 1] = words[j];
      values[j - 1] = values[j];
    }
    --size;
    words[size] = 0;
    values[size] = 0;
  }

  /// The value this thread reads from `from` while memory holds `visible`.
  std::uint8_t forward(std::uint8_t from, std::uint8_t visible) const noexcept {
    for (std::size_t i = size; i-- > 0;)
      if (word_at(i) == from) return values[i];
    return visible;
  }
};

}  // namespace cenote::model
