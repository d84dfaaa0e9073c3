// Parts of the indexer's benches: prompts that are made again from their numbers, and the benches themselves.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "commands/bench/support.hpp"
#include "services/indexer/forest/forest.hpp"

namespace cenote::bench {

inline constexpr std::size_t chain_length = 1000;  ///< blocks of a prompt
inline constexpr std::size_t store_length = 64;    ///< blocks of an event
inline constexpr std::uint32_t block_tokens = 16;

/// Keys and hashes of a prompt, made again from its number, so that they take no memory.
[[nodiscard]] inline std::uint64_t key_at(std::uint64_t prompt, std::size_t block) noexcept {
  return indexer::spread(prompt * chain_length + block, 0x5eed);
}
[[nodiscard]] inline std::uint64_t hash_at(std::uint64_t prompt, std::size_t block) noexcept {
  return indexer::spread(prompt * chain_length + block, 0xeade5);
}
inline void write_prompt(std::uint64_t prompt, std::span<std::uint64_t> keys,
                         std::span<std::uint64_t> hashes) noexcept {
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = key_at(prompt, i);
  for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = hash_at(prompt, i);
}

/// Stores a prompt as an engine's events do, 64 blocks each; the answer is how many found room.
inline std::size_t store_prompt(indexer::forest& index, std::span<const std::uint64_t> keys,
                                std::span<const std::uint64_t> hashes, indexer::holder stored_by) noexcept {
  std::size_t stored = 0;
  indexer::block_number parent = indexer::no_block;
  for (std::size_t at = 0; at < keys.size(); at += store_length) {
    const std::size_t count = std::min(store_length, keys.size() - at);
    const auto names = hashes.subspan(at, count);
    stored += index.store(0, parent, keys.subspan(at, count), names, stored_by).value_or(0);
    parent = index.block_of(0, names.back());
  }
  return stored;
}

/// Memory that the index takes and gives back: further pods of the same prompts, holes, a clear.
namespace indexer_memory_bench {
[[nodiscard]] result<void> run(report& out);
}
/// A writer at full rate beside two readers.
namespace indexer_writer_bench {
[[nodiscard]] result<void> run(report& out);
}
/// Questions of a conversation trace beside the events that it causes. Errors: those of reading a trace.
namespace indexer_trace_bench {
[[nodiscard]] result<void> run(const options& options, report& out);
}

}  // namespace cenote::bench
