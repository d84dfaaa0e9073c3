// Numbers that nobody guesses.
#pragma once

#include <cstdint>

namespace cenote {

/// From the kernel's generator; never 0, which stands for none. Thread-safe.
[[nodiscard]] std::uint64_t random_number() noexcept;

}  // namespace cenote
