#include "core/json_writer.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include "core/text.hpp"

namespace cenote {

namespace {

template <class Number>
void append_digits(std::string& out, Number value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

/// A character that stands in JSON text only with a backslash.
void append_escaped(std::string& out, char c) {
  constexpr std::string_view hexadecimal = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(c);
  switch (c) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    default:
      out += "\\u00";
      out.push_back(hexadecimal[value >> 4U]);
      out.push_back(hexadecimal[value & 15U]);
  }
}

}  // namespace

void append_json_text(std::string& out, std::string_view value) {
  out.push_back('"');
  std::size_t copied = 0;
  for (std::size_t i = 0; i < value.size();) {
    const auto c = static_cast<unsigned char>(value[i]);
    const std::size_t length = c < 0x80 ? 1 : utf8_length(value.substr(i));
    if (length > 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
      i += length;
      continue;
    }
    out.append(value, copied, i - copied);
    if (length == 0) {
      out += "\xef\xbf\xbd";
    } else {
      append_escaped(out, value[i]);
    }
    copied = ++i;
  }
  out.append(value, copied);
  out.push_back('"');
}

void json_writer::name(std::string_view name) {
  separate();
  out_.push_back('"');
  out_ += name;
  out_ += "\":";
  needs_comma_ = false;
}

void json_writer::name_text(std::string_view name) {
  separate();
  append_json_text(out_, name);
  out_.push_back(':');
  needs_comma_ = false;
}

void json_writer::text(std::string_view value) {
  separate();
  append_json_text(out_, value);
}

void json_writer::number(std::uint64_t value) {
  separate();
  append_digits(out_, value);
}

void json_writer::signed_number(std::int64_t value) {
  separate();
  append_digits(out_, value);
}

void json_writer::real(double value) {
  if (!std::isfinite(value)) return null();
  separate();
  append_digits(out_, value);
}

void json_writer::boolean(bool value) {
  separate();
  out_ += value ? "true" : "false";
}

void json_writer::null() {
  separate();
  out_ += "null";
}

void json_writer::decimal_text(std::uint64_t value) {
  separate();
  out_.push_back('"');
  append_digits(out_, value);
  out_.push_back('"');
}

}  // namespace cenote
