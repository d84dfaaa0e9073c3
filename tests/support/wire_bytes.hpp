// Bytes of Protocol Buffers written by hand: fields by number, so that a test needs no message.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace cenote::test {

/// Appends fields to a text. Not thread-safe.
class wire_bytes {
 public:
  wire_bytes& number(std::uint32_t field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3U);
    varint(value);
    return *this;
  }
  wire_bytes& text(std::uint32_t field, std::string_view value) {
    varint((std::uint64_t{field} << 3U) | 2U);
    varint(value.size());
    text_.append(value);
    return *this;
  }
  wire_bytes& part(std::uint32_t field, const wire_bytes& value) { return text(field, value.text_); }
  wire_bytes& fixed(std::uint32_t field, std::uint64_t value) {
    varint((std::uint64_t{field} << 3U) | 1U);
    append_fixed(value);
    return *this;
  }
  wire_bytes& real(std::uint32_t field, double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return fixed(field, bits);
  }

  [[nodiscard]] const std::string& bytes() const noexcept { return text_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) text_ += static_cast<char>(value | 0x80U);
    text_ += static_cast<char>(value);
  }
  void append_fixed(std::uint64_t value) {
    for (int i = 0; i < 8; ++i, value >>= 8U) text_ += static_cast<char>(value & 0xffU);
  }

  std::string text_;
};

}  // namespace cenote::test
