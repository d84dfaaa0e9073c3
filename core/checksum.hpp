// The one place that takes checksums: XXH3-64, by the widest instructions that the processor has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cenote {

/// The XXH3-64 of `bytes`. Equal on every machine, so it may be written to disk. Thread-safe.
[[nodiscard]] std::uint64_t checksum_of(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept;

/// The same of `size` bytes at `data`.
[[nodiscard]] inline std::uint64_t checksum_of(const void* data, std::size_t size, std::uint64_t seed = 0) noexcept {
  return checksum_of({static_cast<const std::byte*>(data), size}, seed);
}

/// XXH3-64 compiled for one set of instructions.
struct checksum_variant {
  std::string_view name;  ///< of the instructions: "AVX-512"
  std::uint64_t (*take)(const void* data, std::size_t size, std::uint64_t seed) noexcept;
  void (*add)(void* state, const void* data, std::size_t size) noexcept;  ///< see running_checksum
};

/// Those that this processor can run, the widest last: that one is used.
[[nodiscard]] std::span<const checksum_variant> checksum_variants() noexcept;
/// What checksum_of() uses, for logs and status.
[[nodiscard]] std::string_view checksum_instructions() noexcept;

}  // namespace cenote
