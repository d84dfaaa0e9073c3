// Encodes, decodes and checks the header of a value.
#include "tiers/remote/value.hpp"

#include <bit>
#include <cstring>

#include "core/checksum.hpp"
#include "core/stored_identity.hpp"

namespace cenote::remote {

namespace {

static_assert(std::endian::native == std::endian::little, "values are little-endian");

constexpr std::uint64_t value_magic = 0x766b65746f6e6563;  // "cenotekv"

struct header_layout {
  std::uint64_t magic = value_magic;
  std::uint32_t version = value_version;
  std::uint32_t header_bytes = value_header_bytes;
  instance_identity identity;
  std::uint32_t group = 0;
  std::uint32_t key_bytes = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t checksum = 0;
  std::array<std::byte, max_key_bytes> key{};
  std::array<std::byte, 8> zeros{};
};
static_assert(sizeof(header_layout) == value_header_bytes && sizeof(header_layout::key) == 64);

header_layout layout_of(const block_name& name, std::size_t size) noexcept {
  return {.identity = name.identity,
          .group = name.group,
          .key_bytes = name.full.size,
          .block_bytes = size,
          .key = name.full.bytes};
}

}  // namespace

value_header header_of(const block_name& name, std::size_t size, std::uint64_t hash) noexcept {
  header_layout layout = layout_of(name, size);
  layout.checksum = bind_checksum(hash, name.identity, name.group, name.full);
  return std::bit_cast<value_header>(layout);
}

value_state judge(std::span<const std::byte> header, std::span<const std::byte> bytes, const block_name& name) {
  if (header.size() != value_header_bytes) return value_state::wrong;
  header_layout found;
  std::memcpy(&found, header.data(), sizeof(found));
  if (found.key_bytes < min_key_bytes || found.key_bytes > max_key_bytes) return value_state::wrong;

  // All that is not the name must be as we write it, and the checksum must be that of the name that stands there.
  block_name there{.identity = name.identity, .group = found.group};
  there.full = full_key(std::span(found.key).first(found.key_bytes));
  header_layout expected = layout_of(there, bytes.size());
  expected.checksum = bind_checksum(checksum_of(bytes), there.identity, there.group, there.full);
  if (std::memcmp(&found, &expected, sizeof(found)) != 0) return value_state::wrong;
  return there.group == name.group && there.full == name.full ? value_state::right : value_state::of_another;
}

}  // namespace cenote::remote
