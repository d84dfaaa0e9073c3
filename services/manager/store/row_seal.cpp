#include "services/manager/store/row_seal.hpp"

#include <cstring>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"

namespace cenote::manager {

namespace {

constexpr std::uint32_t row_magic = 0x726d6e63;  // "cnmr"

std::uint64_t check_of(std::string_view name, std::uint16_t version, std::span<const std::byte> content) {
  return checksum_of(content, checksum_of(name.data(), name.size(), version));
}

struct sealed_row {
  std::uint16_t version = 0;
  std::uint64_t check = 0;
  std::span<const std::byte> content{};

  [[nodiscard]] bool is_whole(std::string_view name) const { return check == check_of(name, version, content); }
};

/// Its checksum is not looked at yet: that takes as long as the content. Nothing: the row is damaged.
std::optional<sealed_row> read_row(std::string_view value) {
  byte_reader reader(std::as_bytes(std::span(value)));
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  const auto unused = reader.get<std::uint16_t>();
  const auto size = reader.get<std::uint32_t>();
  const auto check = reader.get<std::uint64_t>();
  if (!reader.ok() || magic != row_magic || unused != 0 || size != reader.remaining()) return std::nullopt;
  return sealed_row{.version = version, .check = check, .content = reader.get_run(size)};
}

}  // namespace

std::string sealed(std::string_view name, std::span<const std::byte> content, std::uint16_t version) {
  byte_writer head;
  head.put(row_magic);
  head.put(version);
  head.put(std::uint16_t{0});
  head.put(static_cast<std::uint32_t>(content.size()));
  head.put(check_of(name, version, content));
  std::string row(seal_bytes + content.size(), '\0');
  std::memcpy(row.data(), head.bytes().data(), seal_bytes);
  if (!content.empty()) std::memcpy(row.data() + seal_bytes, content.data(), content.size());
  return row;
}

std::optional<std::span<const std::byte>> unsealed(std::string_view name, std::string_view value,
                                                   std::uint16_t version) {
  const auto row = read_row(value);
  if (!row || row->version != version || !row->is_whole(name)) return std::nullopt;
  return row->content;
}

bool is_newer_row(std::string_view name, std::string_view value) {
  const auto row = read_row(value);
  return row && row->version > newest_row_version && row->is_whole(name);
}

}  // namespace cenote::manager
