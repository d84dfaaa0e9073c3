#include "services/indexer/events/msgpack_reader.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace cenote::indexer {

namespace {

static_assert(std::endian::native == std::endian::little, "words() swaps bytes");

constexpr std::uint8_t no_value = 0xc1;

[[nodiscard]] std::uint64_t big_endian(const std::uint8_t* data, unsigned width) noexcept {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < width; ++i) value = value << 8 | data[i];
  return value;
}

/// Sign-extended from `width` bytes.
[[nodiscard]] std::uint64_t signed_bits(const std::uint8_t* data, unsigned width) noexcept {
  const unsigned shift = 64 - 8 * width;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(big_endian(data, width) << shift) >> shift);
}

}  // namespace

bool msgpack_reader::has(std::uint64_t size) noexcept {
  if (whole_ && size <= remaining()) return true;
  whole_ = false;
  return false;
}

std::uint8_t msgpack_reader::lead() noexcept {
  if (!has(1)) return no_value;
  if (*cursor_ == no_value) whole_ = false;
  return *cursor_;
}

bool msgpack_reader::nil() noexcept {
  if (lead() != 0xc0) return false;
  ++cursor_;
  return true;
}

std::optional<bool> msgpack_reader::boolean() noexcept {
  const std::uint8_t first = lead();
  if (first != 0xc2 && first != 0xc3) return std::nullopt;
  ++cursor_;
  return first == 0xc3;
}

std::optional<msgpack_integer> msgpack_reader::integer() noexcept {
  const std::uint8_t first = lead();
  if (first <= 0x7f) {
    ++cursor_;
    return msgpack_integer{first, false};
  }
  if (first >= 0xe0) {
    ++cursor_;
    return msgpack_integer{static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int8_t>(first))),
                           true};
  }
  if (first < 0xcc || first > 0xd3) return std::nullopt;
  const bool is_signed = first >= 0xd0;
  const unsigned width = 1U << ((first - 0xcc) & 3);
  if (!has(1 + width)) return std::nullopt;
  const std::uint64_t bits = is_signed ? signed_bits(cursor_ + 1, width) : big_endian(cursor_ + 1, width);
  cursor_ += 1 + width;
  return msgpack_integer{bits, is_signed && static_cast<std::int64_t>(bits) < 0};
}

std::optional<double> msgpack_reader::floating() noexcept {
  const std::uint8_t first = lead();
  if (first != 0xca && first != 0xcb) return std::nullopt;
  const unsigned width = first == 0xca ? 4 : 8;
  if (!has(1 + width)) return std::nullopt;
  const std::uint64_t bits = big_endian(cursor_ + 1, width);
  cursor_ += 1 + width;
  if (width == 8) return std::bit_cast<double>(bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
}

std::optional<msgpack_reader::value_head> msgpack_reader::wide_header(unsigned width) noexcept {
  if (!has(1 + width)) return std::nullopt;
  return value_head{static_cast<std::uint32_t>(big_endian(cursor_ + 1, width)), static_cast<std::uint8_t>(1 + width)};
}

std::optional<msgpack_reader::value_head> msgpack_reader::array_header() noexcept {
  const std::uint8_t first = lead();
  if ((first & 0xf0U) == 0x90) return value_head{first & 0x0fU, 1};
  if (first == 0xdc) return wide_header(2);
  if (first == 0xdd) return wide_header(4);
  return std::nullopt;
}

std::optional<msgpack_reader::value_head> msgpack_reader::map_header() noexcept {
  const std::uint8_t first = lead();
  if ((first & 0xf0U) == 0x80) return value_head{first & 0x0fU, 1};
  if (first == 0xde) return wide_header(2);
  if (first == 0xdf) return wide_header(4);
  return std::nullopt;
}

std::optional<std::span<const std::byte>> msgpack_reader::content(std::optional<value_head> head) noexcept {
  if (!head || !has(std::uint64_t{head->size} + head->length)) return std::nullopt;
  const auto* const data = reinterpret_cast<const std::byte*>(cursor_ + head->size);
  cursor_ += head->size + head->length;
  return std::span(data, head->length);
}

std::optional<std::string_view> msgpack_reader::text() noexcept {
  const std::uint8_t first = lead();
  std::optional<value_head> head;
  if ((first & 0xe0U) == 0xa0) head = value_head{first & 0x1fU, 1};
  if (first >= 0xd9 && first <= 0xdb) head = wide_header(1U << (first - 0xd9));
  const auto bytes = content(head);
  if (!bytes) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

std::optional<std::span<const std::byte>> msgpack_reader::bytes() noexcept {
  const std::uint8_t first = lead();
  if (first < 0xc4 || first > 0xc6) return std::nullopt;
  return content(wide_header(1U << (first - 0xc4)));
}

std::optional<std::uint32_t> msgpack_reader::enter(std::optional<value_head> head, unsigned bytes_each) noexcept {
  if (!head || !has(head->size + std::uint64_t{head->length} * bytes_each)) return std::nullopt;
  cursor_ += head->size;
  return head->length;
}

std::optional<std::uint32_t> msgpack_reader::array() noexcept {
  return enter(array_header(), 1);
}

std::optional<std::uint32_t> msgpack_reader::map() noexcept {
  return enter(map_header(), 2);
}

bool msgpack_reader::words(std::span<std::uint32_t> values) noexcept {
  for (std::uint32_t& value : values) {
    // The forms that tokens have; the last five bytes, and all other forms, are read as any integer. Two and four bytes
    // take one way, since a branch between them is foreseen badly.
    if (remaining() >= 5) {
      const std::uint8_t first = *cursor_;
      if (const unsigned is_wide = first - 0xcdU; is_wide <= 1) {
        std::uint32_t word = 0;
        std::memcpy(&word, cursor_ + 1, sizeof(word));
        value = __builtin_bswap32(word) >> (16 - 16 * is_wide);
        cursor_ += 3 + 2 * is_wide;
        continue;
      }
      if (first <= 0x7f) {
        value = first;
        ++cursor_;
        continue;
      }
    }
    const auto number = integer();
    if (!number) return false;
    const auto word = number->held_by<std::uint32_t>();
    const auto negative = number->held_by<std::int32_t>();
    if (!word && !negative) return false;
    value = static_cast<std::uint32_t>(number->bits);
  }
  return true;
}

std::uint64_t msgpack_reader::scalar_size() noexcept {
  const std::uint8_t first = lead();
  if (!whole_) return 0;
  if (first <= 0x7f || first >= 0xe0 || (first >= 0xc0 && first <= 0xc3)) return 1;
  if ((first & 0xe0U) == 0xa0) return 1U + (first & 0x1fU);
  if (first >= 0xcc && first <= 0xd3) return 1U + (1U << ((first - 0xcc) & 3));
  if (first == 0xca || first == 0xcb) return first == 0xca ? 5 : 9;
  if (first >= 0xd4 && first <= 0xd8) return 2U + (1U << (first - 0xd4));  // ext of a fixed size: a type besides
  // bin (0xc4), ext (0xc7) and str (0xd9) with a length of one, two or four bytes
  const bool is_extension = first >= 0xc7 && first <= 0xc9;
  const unsigned base = first >= 0xd9 ? 0xd9 : is_extension ? 0xc7 : 0xc4;
  const auto head = wide_header(1U << (first - base));
  return head ? std::uint64_t{head->size} + head->length + (is_extension ? 1 : 0) : 0;
}

bool msgpack_reader::skip(unsigned levels) noexcept {
  std::array<std::uint64_t, most_levels + 1> rest{1};  // values to pass, of each level that is open
  unsigned level = 0;
  bool is_shallow = true;
  while (true) {
    while (level > 0 && rest[level] == 0) --level;
    if (rest[level] == 0) return is_shallow;
    --rest[level];
    std::uint64_t elements = 0;
    if (const auto count = array()) {
      elements = *count;
    } else if (const auto entries = map()) {
      elements = 2 * std::uint64_t{*entries};
    } else {
      const std::uint64_t size = scalar_size();
      if (size == 0 || !has(size)) return false;
      cursor_ += size;
      continue;
    }
    if (level < levels) {
      rest[++level] = elements;
    } else {  // too deep: its elements are counted with their neighbours
      is_shallow = false;
      rest[level] += elements;
    }
  }
}

}  // namespace cenote::indexer
