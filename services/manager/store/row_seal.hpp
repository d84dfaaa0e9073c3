// The envelope of each row of a journal: magic, version, size and checksum.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace cenote::manager {

/// Bytes that a seal adds.
inline constexpr std::size_t seal_bytes = 4 + 2 + 2 + 4 + 8;

/// No row has a larger version.
inline constexpr std::uint16_t newest_row_version = 3;

/// The content with its envelope. The checksum covers the row's name, too, so that a row under another name is damaged.
[[nodiscard]] std::string sealed(std::string_view name, std::span<const std::byte> content, std::uint16_t version);

/// The content of a sealed row of this version; nothing if it is damaged or of another version.
[[nodiscard]] std::optional<std::span<const std::byte>> unsealed(std::string_view name, std::string_view value,
                                                                 std::uint16_t version);

/// Whether the row is whole, and of a version above the newest: a newer manager wrote it.
[[nodiscard]] bool is_newer_row(std::string_view name, std::string_view value);

}  // namespace cenote::manager
