// Numbers of batches as frames have them: 8 bytes, big endian.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace cenote::publishing {

using batch_number = std::array<char, 8>;

/// In the place of a number: no batch follows.
inline constexpr std::uint64_t last_batch_number = std::numeric_limits<std::uint64_t>::max();

[[nodiscard]] constexpr batch_number number_frame(std::uint64_t number) noexcept {
  batch_number frame{};
  for (std::size_t i = frame.size(); i > 0; --i, number >>= 8) frame[i - 1] = static_cast<char>(number & 0xff);
  return frame;
}

/// Nothing unless the frame has 8 bytes.
[[nodiscard]] constexpr std::optional<std::uint64_t> number_in(std::string_view frame) noexcept {
  if (frame.size() != batch_number().size()) return std::nullopt;
  std::uint64_t number = 0;
  for (const char each : frame) number = number << 8 | static_cast<unsigned char>(each);
  return number;
}

}  // namespace cenote::publishing
