// The form of the registry's rows in a store.
#include "services/manager/registry/row_format.hpp"

#include <cstdint>
#include <cstring>
#include <span>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"

namespace cenote::manager {

namespace {

constexpr std::uint32_t row_magic = 0x52474d43;  // "CMGR"
constexpr std::uint32_t row_version = 1;
constexpr std::size_t header_size = 24;

std::uint64_t row_checksum(std::string_view key, std::string_view content) noexcept {
  return checksum_of(content.data(), content.size(), checksum_of(key.data(), key.size()));
}

}  // namespace

std::string pack_row(std::string_view key, std::string_view content) {
  byte_writer header;
  header.put(row_magic);
  header.put(row_version);
  header.put(static_cast<std::uint64_t>(content.size()));
  header.put(row_checksum(key, content));
  std::string value(header.bytes().size() + content.size(), '\0');
  std::memcpy(value.data(), header.bytes().data(), header.bytes().size());
  std::memcpy(value.data() + header.bytes().size(), content.data(), content.size());
  return value;
}

std::optional<std::string_view> unpack_row(std::string_view key, std::string_view value) noexcept {
  byte_reader header(std::as_bytes(std::span(value)));
  const auto magic = header.get<std::uint32_t>();
  const auto version = header.get<std::uint32_t>();
  const auto size = header.get<std::uint64_t>();
  const auto checksum = header.get<std::uint64_t>();
  if (!header.ok() || magic != row_magic || version != row_version || size != header.remaining()) return std::nullopt;
  const std::string_view content = value.substr(header_size);
  if (row_checksum(key, content) != checksum) return std::nullopt;
  return content;
}

}  // namespace cenote::manager
