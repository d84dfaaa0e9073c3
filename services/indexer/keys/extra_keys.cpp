#include "services/indexer/keys/extra_keys.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "services/indexer/keys/cbor_head.hpp"

namespace cenote::indexer {

namespace {

/// A half-precision number's bits, if it has exactly this value (not NaN).
bool as_half(float value, std::uint16_t& half) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
  const int exponent = static_cast<int>(bits >> 23 & 0xffU) - 127;
  const std::uint32_t fraction = bits & 0x7f'ffffU;
  if ((bits & 0x7fff'ffffU) == 0) {
    half = sign;
  } else if (exponent == 128) {  // infinite
    half = sign | 0x7c00U;
  } else if (exponent >= -14 && exponent <= 15 && (fraction & 0x1fffU) == 0) {
    half = static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(exponent + 15) << 10 | fraction >> 13);
  } else if (exponent >= -24 && exponent < -14) {  // subnormal as a half: the leading one is written out
    const std::uint32_t whole = fraction | 0x80'0000U;
    const auto shift = static_cast<unsigned>(13 + (-14 - exponent));
    if ((whole & ((1U << shift) - 1)) != 0) return false;
    half = static_cast<std::uint16_t>(sign | whole >> shift);
  } else {
    return false;
  }
  return true;
}

/// By length, then by bytes.
bool key_before(std::span<const std::byte> one, std::span<const std::byte> two) noexcept {
  if (one.size() != two.size()) return one.size() < two.size();
  return std::ranges::lexicographical_compare(one, two);
}

}  // namespace

bool map_order::place(std::vector<std::byte>& bytes, std::size_t start) {
  if (count_ == most_entries) return false;
  const auto key_at = [&](std::size_t offset) {
    const auto rest = std::span<const std::byte>(bytes).subspan(offset);
    return rest.first(item_size(rest));
  };
  std::size_t place = count_;
  while (place > 0 && key_before(key_at(start), key_at(starts_[place - 1]))) --place;
  const std::size_t size = bytes.size() - start;
  const std::size_t target = place == count_ ? start : starts_[place];
  const auto begin = bytes.begin();
  std::rotate(begin + static_cast<std::ptrdiff_t>(target), begin + static_cast<std::ptrdiff_t>(start), bytes.end());
  for (std::size_t i = count_; i > place; --i) starts_[i] = starts_[i - 1] + size;
  starts_[place] = target;
  ++count_;
  return true;
}

void extra_key_writer::put(const void* data, std::size_t size) {
  const auto* const first = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), first, first + size);
}

void extra_key_writer::null() {
  bytes_.push_back(std::byte{0xf6});
}

void extra_key_writer::boolean(bool value) {
  bytes_.push_back(value ? std::byte{0xf5} : std::byte{0xf4});
}

void extra_key_writer::unsigned_integer(std::uint64_t value) {
  const auto head = encode_head(cbor_major::unsigned_number, value);
  put(head.bytes.data(), head.size);
}

void extra_key_writer::integer(std::int64_t value) {
  if (value >= 0) return unsigned_integer(static_cast<std::uint64_t>(value));
  const auto head = encode_head(cbor_major::negative_number, ~static_cast<std::uint64_t>(value));
  put(head.bytes.data(), head.size);
}

void extra_key_writer::number(double value) {
  const auto single = static_cast<float>(value);  // infinite where it is too large: then it differs
  std::uint16_t half = 0x7e00;                    // not a number, in its only form
  if (std::isnan(value) || (static_cast<double>(single) == value && as_half(single, half))) {
    const std::array<std::uint8_t, 3> bytes{0xf9, static_cast<std::uint8_t>(half >> 8),
                                            static_cast<std::uint8_t>(half)};
    return put(bytes.data(), bytes.size());
  }
  const bool is_single = static_cast<double>(single) == value;
  const std::uint64_t bits = is_single ? std::bit_cast<std::uint32_t>(single) : std::bit_cast<std::uint64_t>(value);
  const unsigned width = is_single ? 4 : 8;
  bytes_.push_back(is_single ? std::byte{0xfa} : std::byte{0xfb});
  for (unsigned i = 0; i < width; ++i) bytes_.push_back(static_cast<std::byte>(bits >> (8 * (width - 1 - i))));
}

void extra_key_writer::text(std::string_view value) {
  const auto head = encode_head(cbor_major::text, value.size());
  put(head.bytes.data(), head.size);
  put(value.data(), value.size());
}

void extra_key_writer::byte_text(std::span<const std::byte> value) {
  const auto head = encode_head(cbor_major::bytes, value.size());
  put(head.bytes.data(), head.size);
  put(value.data(), value.size());
}

void extra_key_writer::list(std::uint64_t elements) {
  const auto head = encode_head(cbor_major::list, elements);
  put(head.bytes.data(), head.size);
}

void extra_key_writer::map(std::uint64_t entries) {
  const auto head = encode_head(cbor_major::map, entries);
  put(head.bytes.data(), head.size);
}

std::size_t item_size(std::span<const std::byte> bytes, unsigned levels) noexcept {
  const cbor_head head = decode_head(bytes);
  if (head.size == 0) return 0;
  const std::size_t room = bytes.size() - head.size;
  switch (head.major) {
    case cbor_major::unsigned_number:
    case cbor_major::negative_number:
    case cbor_major::simple: return head.size;
    case cbor_major::bytes:
    case cbor_major::text: return head.argument <= room ? head.size + static_cast<std::size_t>(head.argument) : 0;
    case cbor_major::list:
    case cbor_major::map: break;
    case cbor_major::tag: return 0;
  }
  if (levels == 0 || head.argument > room) return 0;  // an element has a byte at least
  std::uint64_t items = head.major == cbor_major::map ? 2 * head.argument : head.argument;
  std::size_t size = head.size;
  for (; items > 0; --items) {
    const std::size_t each = item_size(bytes.subspan(size), levels - 1);
    if (each == 0) return 0;
    size += each;
  }
  return size;
}

extra_key_elements elements_of(std::span<const std::byte> list, std::string_view lora_name) noexcept {
  const cbor_head head = decode_head(list);
  if (head.size == 0 || head.major != cbor_major::list || head.argument == 0) return {};
  extra_key_elements elements{head.argument, list.subspan(head.size)};
  if (lora_name.empty()) return elements;
  const cbor_head first = decode_head(elements.bytes);
  const auto rest = elements.bytes.subspan(std::min<std::size_t>(first.size, elements.bytes.size()));
  const bool is_name = first.size != 0 && first.major == cbor_major::text && first.argument == lora_name.size() &&
                       rest.size() >= lora_name.size() &&
                       std::memcmp(rest.data(), lora_name.data(), lora_name.size()) == 0;
  if (is_name) elements = {elements.count - 1, rest.subspan(lora_name.size())};
  return elements;
}

void append_text_list(extra_key_table& table, std::string_view text) {
  const auto start = static_cast<std::uint32_t>(table.bytes.size());
  extra_key_writer writer(table.bytes);
  writer.list(1);
  writer.text(text);
  table.blocks.push_back({start, static_cast<std::uint32_t>(table.bytes.size()) - start});
}

void append_to_list(extra_key_table& table, std::size_t block, std::string_view text) {
  const array_range old = table.blocks[block];
  const auto start = static_cast<std::uint32_t>(table.bytes.size());
  const extra_key_elements elements = elements_of(table.view().list(block), {});
  const std::size_t skipped = old.size - elements.bytes.size();
  extra_key_writer writer(table.bytes);
  writer.list(elements.count + 1);
  // Copied from the array into itself: by index, since it may move.
  table.bytes.reserve(table.bytes.size() + elements.bytes.size());
  for (std::size_t i = skipped; i < old.size; ++i) table.bytes.push_back(table.bytes[old.first + i]);
  writer.text(text);
  table.blocks[block] = {start, static_cast<std::uint32_t>(table.bytes.size()) - start};
}

}  // namespace cenote::indexer
