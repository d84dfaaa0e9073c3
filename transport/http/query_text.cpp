#include "transport/http/query_text.hpp"

#include <charconv>

namespace cenote::http {

bool append_decoded(std::string& out, std::string_view text) {
  while (true) {
    const auto percent = text.find('%');
    out += text.substr(0, percent);
    if (percent == std::string_view::npos) return true;
    text.remove_prefix(percent + 1);
    unsigned char value = 0;
    if (text.size() < 2) return false;
    const auto [end, wrong] = std::from_chars(text.data(), text.data() + 2, value, 16);
    if (wrong != std::errc{} || end != text.data() + 2) return false;
    out.push_back(static_cast<char>(value));
    text.remove_prefix(2);
  }
}

bool append_decoded_query(std::string& out, std::string_view text) {
  while (true) {
    const auto plus = text.find('+');
    if (!append_decoded(out, text.substr(0, plus))) return false;
    if (plus == std::string_view::npos) return true;
    out.push_back(' ');
    text.remove_prefix(plus + 1);
  }
}

std::string encoded(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF", marks = "-._~";
  std::string out;
  for (const char each : text) {
    const bool is_letter = (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z');
    if (is_letter || (each >= '0' && each <= '9') || marks.contains(each)) {
      out += each;
      continue;
    }
    const auto byte = static_cast<unsigned char>(each);
    out += {'%', digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

std::optional<query_field> cut_query_field(std::string_view& query) noexcept {
  while (query.starts_with('&')) query.remove_prefix(1);
  if (query.empty()) return std::nullopt;
  const std::string_view field = query.substr(0, query.find('&'));
  query.remove_prefix(field.size());
  const auto equals = field.find('=');
  if (equals == std::string_view::npos) return query_field{field, {}};
  return query_field{field.substr(0, equals), field.substr(equals + 1)};
}

}  // namespace cenote::http
