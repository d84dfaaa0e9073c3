// The form of the registry's rows in a store.
#include "services/manager/registry/row_format.hpp"

#include <cstdint>
#include <span>

#include "services/manager/store/row_seal.hpp"

namespace cenote::manager {

namespace {

constexpr std::uint16_t row_version = 1;

}  // namespace

std::string pack_row(std::string_view key, std::string_view content) {
  return sealed(key, std::as_bytes(std::span(content)), row_version);
}

std::optional<std::string_view> unpack_row(std::string_view key, std::string_view value) noexcept {
  const auto content = unsealed(key, value, row_version);
  if (!content) return std::nullopt;
  return value.substr(value.size() - content->size());
}

}  // namespace cenote::manager
