// Small files that are read whole, and replaced whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "core/error.hpp"

namespace cenote {

/// Up to `limit` bytes, and one more of a longer file; nothing when there is no such file. Blocks for
/// the disk. Errors: `system`.
[[nodiscard]] result<std::optional<std::string>> read_whole(const std::filesystem::path& file, std::size_t limit);

/// Writes `FILE.new` for its owner alone, syncs it, and puts it in the place of `file`: a reader, and a machine that
/// lost its power, find the old content or the new one. Blocks for the disk. Errors: `system`.
[[nodiscard]] result<void> replace_whole(const std::filesystem::path& file, std::span<const std::byte> bytes);

}  // namespace cenote
