// Shared words seen through store buffers and open loads: what a core of x86 (TSO), one that reorders stores (PSO), or
// one of Arm may do.
//
//    owner    reader 0   reader 1   writer 0   writer 1      a thread issues its stores in program order
//   [s s s]     [s]        [ ]       [s s]       [ ]         into its own buffer and reads through it
//      \         |          |         |          /           (its own newest store wins);
//       v        v          v         v         v
//   | version | key | content | record | entries | ... |     a store is visible when it leaves the buffer
//
// TSO: only the oldest store may leave. PSO: any store may leave unless an older one goes to the same word; a
// release store waits for everything older. A seq_cst fence waits for an empty buffer. Loads are in program order.
//
// Arm: as PSO, and a load may stay open: its thread goes on with the value that it hopes for, so that later loads and
// stores pass it. Each open load is satisfied at some later moment, and an execution counts only if every one of them
// found what was hoped for. An acquire load is never open. A release store waits for the loads before it, a fence for
// all open ones, a load of the same word for the older one. Dependencies: what a load's value is the address of comes
// after it, as on the hardware; that a branch depends on it orders nothing, since C++ promises nothing there. Stores
// become visible to all other threads at once (Arm since version 8).
#pragma once

#include <algorithm>
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
  grant,        ///< per writer: 0, 1, or `grant_refused`
  grant_block,  ///< per writer: 0 or the granted block + 1, beside the word
  commit,       ///< per writer: 0 or 1
  word_kinds
};
inline constexpr std::size_t word_count = 2 * std::size_t{word_kinds};

constexpr std::uint8_t word(word_kind kind, std::size_t index) noexcept {
  return static_cast<std::uint8_t>(2U * kind + index);
}

enum class memory_order_model : std::uint8_t { tso, pso, arm };

/// The stores of one thread that nobody else sees yet. Plain bytes: a state is hashed as memory.
struct store_buffer {
  static constexpr std::size_t capacity = 5;
  static constexpr std::uint8_t release_bit = 0x80;
  static constexpr std::uint8_t overtaken_bit = 0x40;  ///< a younger store is visible

  std::uint8_t size = 0;
  std::array<std::uint8_t, capacity> words{};  ///< word and bits
  std::array<std::uint8_t, capacity> values{};
  std::array<std::uint8_t, capacity> older_loads{};  ///< of a release store: a bit for each open load before it

  bool full() const noexcept { return size == capacity; }
  std::uint8_t word_at(std::size_t i) const noexcept { return words[i] & 0x3fU; }
  bool any_overtaken() const noexcept {
    return std::ranges::any_of(words, [](std::uint8_t each) { return (each & overtaken_bit) != 0; });
  }

  void push(std::uint8_t word, std::uint8_t value, bool release, std::uint8_t loads) noexcept {
    words[size] = static_cast<std::uint8_t>(word | (release ? release_bit : 0U));
    values[size] = value;
    older_loads[size] = release ? loads : std::uint8_t{0};
    ++size;
  }

  /// May the i-th oldest store become visible now?
  bool may_leave(std::size_t i, memory_order_model order) const noexcept {
    if (i >= size || older_loads[i] != 0) return false;
    if (i == 0) return true;
    if (order == memory_order_model::tso || (words[i] & release_bit) != 0) return false;
    for (std::size_t older = 0; older < i; ++older)
      if (word_at(older) == word_at(i)) return false;
    return true;
  }

  void remove(std::size_t i) noexcept {
    for (std::size_t older = 0; older < i; ++older) words[older] |= overtaken_bit;
    for (std::size_t j = i + 1; j < size; ++j) {
      words[j - 1] = words[j];
      values[j - 1] = values[j];
      older_loads[j - 1] = older_loads[j];
    }
    --size;
    words[size] = 0;
    values[size] = 0;
    older_loads[size] = 0;
  }

  /// The i-th open load is satisfied: nothing waits for it, and those behind it move up.
  void forget_load(std::size_t i) noexcept {
    const auto older = static_cast<std::uint8_t>((1U << i) - 1U);
    for (std::uint8_t& mask : older_loads)
      mask = static_cast<std::uint8_t>((mask & older) | (mask >> 1U & static_cast<unsigned>(~older & 0xffU)));
  }

  /// The value this thread reads from `from` while memory holds `visible`.
  std::uint8_t forward(std::uint8_t word, std::uint8_t visible) const noexcept {
    for (std::size_t i = size; i-- > 0;)
      if (word_at(i) == word) return values[i];
    return visible;
  }
};

/// The loads of one thread that are not satisfied yet, in program order, and what each is hoped to find.
struct open_loads {
  static constexpr std::size_t capacity = 3;

  std::uint8_t size = 0;
  std::array<std::uint8_t, capacity> words{};
  std::array<std::uint8_t, capacity> hopes{};

  bool full() const noexcept { return size == capacity; }
  std::uint8_t mask() const noexcept { return static_cast<std::uint8_t>((1U << size) - 1U); }

  void push(std::uint8_t word, std::uint8_t value) noexcept {
    words[size] = word;
    hopes[size] = value;
    ++size;
  }

  /// Is one of the first `count` of `word`?
  bool has(std::uint8_t word, std::size_t count) const noexcept {
    for (std::size_t i = 0; i < count; ++i)
      if (words[i] == word) return true;
    return false;
  }

  void remove(std::size_t i) noexcept {
    for (std::size_t j = i + 1; j < size; ++j) {
      words[j - 1] = words[j];
      hopes[j - 1] = hopes[j];
    }
    --size;
    words[size] = 0;
    hopes[size] = 0;
  }
};

}  // namespace cenote::model
