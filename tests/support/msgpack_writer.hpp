// Writes MessagePack for tests: also what no encoder would write.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace cenote::test {

/// Appends values; each call gives the writer back. Arrays and maps only begin.
class msgpack_writer {
 public:
  msgpack_writer& raw(std::initializer_list<unsigned> bytes) {
    for (const unsigned each : bytes) bytes_.push_back(static_cast<std::byte>(each));
    return *this;
  }
  msgpack_writer& raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  msgpack_writer& nil() { return raw({0xc0}); }
  /// In its shortest form.
  msgpack_writer& integer(std::uint64_t value) {
    if (value < 128) return raw({static_cast<unsigned>(value)});
    if (value <= 0xff) return wide(0xcc, value, 1);
    if (value <= 0xffff) return wide(0xcd, value, 2);
    return value <= 0xffff'ffff ? wide(0xce, value, 4) : wide(0xcf, value, 8);
  }
  msgpack_writer& floating(double value) { return wide(0xcb, std::bit_cast<std::uint64_t>(value), 8); }
  msgpack_writer& text(std::string_view value) {
    return (value.size() < 32 ? raw({0xa0U | static_cast<unsigned>(value.size())}) : wide(0xda, value.size(), 2))
        .raw(std::as_bytes(std::span(value)));
  }
  msgpack_writer& bytes(std::span<const std::byte> value) { return wide(0xc4, value.size(), 1).raw(value); }
  msgpack_writer& array(std::uint64_t size) {
    return size < 16 ? raw({0x90U | static_cast<unsigned>(size)}) : wide(0xdd, size, 4);
  }
  msgpack_writer& map(std::uint64_t size) {
    return size < 16 ? raw({0x80U | static_cast<unsigned>(size)}) : wide(0xdf, size, 4);
  }
  msgpack_writer& integers(std::initializer_list<std::uint64_t> values) {
    array(values.size());
    for (const std::uint64_t each : values) integer(each);
    return *this;
  }
  /// `lead`, then `width` bytes, big endian.
  msgpack_writer& wide(unsigned lead, std::uint64_t value, unsigned width) {
    raw({lead});
    for (unsigned i = 0; i < width; ++i) raw({static_cast<unsigned>(value >> (8 * (width - 1 - i)) & 0xffU)});
    return *this;
  }

  [[nodiscard]] const std::vector<std::byte>& data() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace cenote::test
