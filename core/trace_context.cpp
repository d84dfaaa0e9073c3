#include "core/trace_context.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace cenote {

namespace {

/// Capitals are not allowed.
std::optional<std::uint8_t> digit_of(char text) noexcept {
  if (text >= '0' && text <= '9') return static_cast<std::uint8_t>(text - '0');
  if (text >= 'a' && text <= 'f') return static_cast<std::uint8_t>(text - 'a' + 10);
  return std::nullopt;
}

/// Two digits for each byte of `target`.
bool read_hex(std::string_view text, std::span<std::byte> target) noexcept {
  for (std::size_t i = 0; i < target.size(); ++i) {
    const auto high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
    if (!high || !low) return false;
    target[i] = static_cast<std::byte>(*high << 4U | *low);
  }
  return true;
}

bool is_zero(std::span<const std::byte> bytes) noexcept {
  return std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{0}; });
}

}  // namespace

bool is_valid(const trace_context& context) noexcept {
  return !is_zero(context.trace) && !is_zero(context.span);
}

std::optional<trace_context> parse_traceparent(std::string_view text) noexcept {
  constexpr std::size_t trace_at = 3, span_at = 36, flags_at = 53, size = 55;
  if (text.size() < size || text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  std::array<std::byte, 1> version{}, flags{};
  trace_context made;
  if (!read_hex(text, version) || !read_hex(text.substr(trace_at), made.trace) ||
      !read_hex(text.substr(span_at), made.span) || !read_hex(text.substr(flags_at), flags)) {
    return std::nullopt;
  }
  if (version[0] == std::byte{0xff} || !is_valid(made)) return std::nullopt;
  const bool has_more = text.size() > size;
  if (has_more && (version[0] == std::byte{0} || text[size] != '-')) return std::nullopt;
  made.is_sampled = (flags[0] & std::byte{1}) != std::byte{0};
  return made;
}

}  // namespace cenote
