#include "core/text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace cenote {

namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

/// Of a whole sequence, as utf8_length() found it.
std::uint32_t code_point(std::string_view sequence) noexcept {
  const auto first = static_cast<unsigned char>(sequence.front());
  if (sequence.size() == 1) return first;
  std::uint32_t point = first & (0x7fU >> sequence.size());
  for (const char c : sequence.substr(1)) point = (point << 6U) | (static_cast<unsigned char>(c) & 0x3fU);
  return point;
}

/// C0, DEL, C1, line and paragraph separators, and what turns the direction of the text around it.
bool is_control(std::uint32_t point) noexcept {
  return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x200e || point == 0x200f ||
         (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

std::string escape(std::uint32_t point) {
  if (point == '\n') return "\\n";
  if (point == '\t') return "\\t";
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), point < 0x80 ? "\\x%02x" : "\\u%04x", static_cast<unsigned>(point));
  return text.data();
}

std::string escape_byte(char c) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return text.data();
}

}  // namespace

std::size_t utf8_length(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const auto at = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = at(0) < 0x80                    ? 1
                             : at(0) >= 0xc2 && at(0) < 0xe0 ? 2
                             : (at(0) & 0xf0) == 0xe0        ? 3
                             : at(0) >= 0xf0 && at(0) < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (at(0) == 0xe0 && at(1) < 0xa0) || (at(0) == 0xf0 && at(1) < 0x90);
  const bool outside = (at(0) == 0xed && at(1) >= 0xa0) || (at(0) == 0xf4 && at(1) >= 0x90);
  return overlong || outside ? 0 : length;
}

std::string as_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    out += length == 0 ? replacement : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view sequence = text.substr(0, length == 0 ? 1 : length);
    if (length == 0) {
      out += escape_byte(text.front());
    } else if (is_control(code_point(sequence))) {
      out += escape(code_point(sequence));
    } else {
      out += sequence;
    }
    text.remove_prefix(sequence.size());
  }
  return out;
}

std::string hex_text(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte each : bytes) {
    const auto value = std::to_integer<unsigned>(each);
    text += digits[value >> 4U];
    text += digits[value & 0xfU];
  }
  return text;
}

std::string_view trimmed(std::string_view text) noexcept {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string_view cut_text(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && most - end < 4 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

bool is_plain_name(std::string_view text) noexcept {
  const auto is_allowed = [](char each) {
    return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || (each >= '0' && each <= '9') ||
           each == '.' || each == '_' || each == '-';
  };
  return !text.empty() && text.size() <= longest_plain_name && std::ranges::all_of(text, is_allowed);
}

result<void> check_name(std::string_view what, std::string_view name, std::size_t most) {
  const std::string subject(what);
  if (name.size() > most) {
    return fail(error_code::invalid_argument, subject + " has " + std::to_string(name.size()) + " bytes; at most " +
                                                  std::to_string(most) + " are allowed");
  }
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t length = utf8_length(name.substr(at));
    if (length == 0) {
      return fail(error_code::invalid_argument,
                  subject + " is not UTF-8: `" + printable(name) + "`, from byte " + std::to_string(at));
    }
    if (name[at] == '\0') return fail(error_code::invalid_argument, subject + " holds a zero byte");
    if (is_control(code_point(name.substr(at, length)))) {
      return fail(error_code::invalid_argument,
                  subject + " holds a control character: `" + printable(name) + "`, at byte " + std::to_string(at));
    }
    at += length;
  }
  return {};
}

}  // namespace cenote
