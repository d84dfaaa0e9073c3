// Lists all ways to copy of this build: the candidates of the choice in machine_choice.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cenote {

/// Copies `bytes` between memories that do not overlap. When it returns, the bytes are ordered before every later store
/// of this thread, as after memcpy. Thread-safe.
using copy_function = void (*)(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;

struct copy_routine {
  std::string name;         ///< "AVX2, 4 pages, next fetched"
  std::uint8_t number = 0;  ///< the same in all builds, since files and session memory hold it
  copy_function run = nullptr;
};

inline constexpr std::uint8_t memcpy_number = 1;

/// Lists the routines that this processor can run, memcpy first. Thread-safe.
[[nodiscard]] std::span<const copy_routine> copy_routines() noexcept;
/// Finds the routine of a number; memcpy for one that this processor cannot run or this build does not have.
/// Thread-safe.
[[nodiscard]] const copy_routine& copy_routine_of(std::uint8_t number) noexcept;

}  // namespace cenote
