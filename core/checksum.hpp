// The one place that takes checksums: XXH3-64, by the instructions that were measured to be the fastest, see
// machine_choice.hpp, and by the widest that the processor has as long as nothing was measured.
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
  std::string_view name;    ///< of the instructions: "AVX-512"
  std::uint8_t number = 0;  ///< the same in all builds, since files and session memory hold it
  std::uint64_t (*take)(const void* data, std::size_t size, std::uint64_t seed) noexcept;
  void (*add)(void* state, const void* data, std::size_t size) noexcept;  ///< see running_checksum
};

/// Lists the variants that this processor can run, the widest last.
[[nodiscard]] std::span<const checksum_variant> checksum_variants() noexcept;
/// The chosen variant. Thread-safe.
[[nodiscard]] const checksum_variant& checksum_in_use() noexcept;
/// What checksum_of() uses, for logs and status.
[[nodiscard]] std::string_view checksum_instructions() noexcept;

}  // namespace cenote
