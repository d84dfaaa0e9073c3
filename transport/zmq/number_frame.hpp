// Numbers as a frame has them: 8 bytes, big endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cenote::zmq {

[[nodiscard]] constexpr std::array<char, 8> number_frame(std::uint64_t number) noexcept {
  std::array<char, 8> frame{};
  for (std::size_t i = frame.size(); i > 0; --i, number >>= 8) frame[i - 1] = static_cast<char>(number & 0xff);
  return frame;
}

/// Nothing unless the frame has 8 bytes.
[[nodiscard]] constexpr std::optional<std::uint64_t> number_in(std::string_view frame) noexcept {
  if (frame.size() != 8) return std::nullopt;
  std::uint64_t number = 0;
  for (const char each : frame) number = number << 8 | static_cast<unsigned char>(each);
  return number;
}

}  // namespace cenote::zmq
