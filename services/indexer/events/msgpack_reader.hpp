// MessagePack (github.com/msgpack/msgpack, spec.md) in one pass over a buffer, without building values. Nothing here
// allocates; a length that goes beyond the buffer is found before anything is done with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace cenote::indexer {

/// An integer of any width: negative ones in two's complement.
struct msgpack_integer {
  std::uint64_t bits = 0;
  bool negative = false;

  /// The value, if `Int` can hold it.
  template <class Int>
  [[nodiscard]] std::optional<Int> held_by() const noexcept {
    const bool is_held = negative ? std::in_range<Int>(static_cast<std::int64_t>(bits)) : std::in_range<Int>(bits);
    return is_held ? std::optional(static_cast<Int>(bits)) : std::nullopt;
  }
};

/// Reads values one by one. A call for a type takes the next value if it has that type; else it gives nothing and the
/// value stays to be read as another type or skipped. At the end of the buffer, inside a value that is cut, or at the
/// byte that MessagePack leaves out (0xc1), whole() turns false for good, and every call gives nothing. Not
/// thread-safe.
class msgpack_reader {
 public:
  /// Levels of arrays and maps that skip() counts.
  static constexpr unsigned most_levels = 8;

  explicit msgpack_reader(std::span<const std::byte> bytes) noexcept
      : begin_(reinterpret_cast<const std::uint8_t*>(bytes.data())), cursor_(begin_), end_(begin_ + bytes.size()) {}

  /// False once the buffer ended inside of a value, or was no MessagePack.
  [[nodiscard]] bool whole() const noexcept { return whole_; }
  [[nodiscard]] std::size_t remaining() const noexcept { return static_cast<std::size_t>(end_ - cursor_); }
  /// Bytes read.
  [[nodiscard]] std::size_t position() const noexcept { return static_cast<std::size_t>(cursor_ - begin_); }
  /// Goes back to a position() of before.
  void rewind(std::size_t position) noexcept { cursor_ = begin_ + position; }

  /// True if the next value was nil.
  [[nodiscard]] bool nil() noexcept;
  [[nodiscard]] std::optional<bool> boolean() noexcept;
  [[nodiscard]] std::optional<msgpack_integer> integer() noexcept;
  /// A floating-point number only.
  [[nodiscard]] std::optional<double> floating() noexcept;
  /// A str, not checked for UTF-8; valid as long as the buffer.
  [[nodiscard]] std::optional<std::string_view> text() noexcept;
  /// A bin; valid as long as the buffer.
  [[nodiscard]] std::optional<std::span<const std::byte>> bytes() noexcept;
  /// The elements of an array, which follow. Never more than there are bytes.
  [[nodiscard]] std::optional<std::uint32_t> array() noexcept;
  /// The entries of a map, which follow. Never more than half of the bytes.
  [[nodiscard]] std::optional<std::uint32_t> map() noexcept;

  /// Reads as many integers as there are places, each in [-2^31, 2^32), negative ones in two's complement. False if an
  /// element is anything else; then an unknown number was read.
  [[nodiscard]] bool words(std::span<std::uint32_t> values) noexcept;

  /// Passes the next value. False if it has more than `levels` levels (at most most_levels), or is cut; one that is
  /// only too deep was passed all the same.
  bool skip(unsigned levels = most_levels) noexcept;

 private:
  struct value_head {
    std::uint32_t length = 0;  ///< bytes of a str or bin, elements of an array, entries of a map
    std::uint8_t size = 0;     ///< bytes of the lead byte and the length
  };

  /// The lead byte of the next value, which stays; 0xc1 if there is none.
  [[nodiscard]] std::uint8_t lead() noexcept;
  /// True if `size` bytes are there; otherwise whole() turns false.
  [[nodiscard]] bool has(std::uint64_t size) noexcept;
  /// The header whose length has `width` bytes.
  [[nodiscard]] std::optional<value_head> wide_header(unsigned width) noexcept;
  [[nodiscard]] std::optional<value_head> array_header() noexcept;
  [[nodiscard]] std::optional<value_head> map_header() noexcept;
  /// The bytes behind a header.
  [[nodiscard]] std::optional<std::span<const std::byte>> content(std::optional<value_head> head) noexcept;
  /// Moves behind a header whose elements have `bytes_each` bytes at least.
  [[nodiscard]] std::optional<std::uint32_t> enter(std::optional<value_head> head, unsigned bytes_each) noexcept;
  /// Bytes of the next value, which has no elements; 0 if it is cut or none.
  [[nodiscard]] std::uint64_t scalar_size() noexcept;

  const std::uint8_t* begin_;
  const std::uint8_t* cursor_;
  const std::uint8_t* end_;
  bool whole_ = true;
};

}  // namespace cenote::indexer
