// Whether a folder can be used, found out without a change that lasts.
#pragma once

#include <filesystem>

#include "core/error.hpp"

namespace cenote {

/// The folder, or as much of its path as is there: what a program that makes it begins in. Errors: system: its path
/// leads through a file, a link to nothing, or a folder that may not be entered.
[[nodiscard]] result<std::filesystem::path> existing_part(const std::filesystem::path& folder);

/// Whether this process can make the folder, where it is not there, and files in it: makes a folder with a name of its
/// own in what is there, and removes it. Errors: as existing_part(); system, with the reason; no_space. Thread-safe.
[[nodiscard]] result<void> check_folder(const std::filesystem::path& folder);

}  // namespace cenote
