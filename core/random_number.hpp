// Numbers that nobody guesses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cenote {

/// From the kernel's generator; at most 256 bytes. Thread-safe.
void fill_randomly(std::span<std::byte> bytes) noexcept;
/// From the same; never 0, which stands for none. Thread-safe.
[[nodiscard]] std::uint64_t random_number() noexcept;

}  // namespace cenote
