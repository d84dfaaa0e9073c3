#include "tests/support/folders.hpp"

namespace cenote::testing {

const std::filesystem::path& source_folder() {
  static const std::filesystem::path folder = CENOTE_SOURCE_DIR;
  return folder;
}

const std::filesystem::path& program_folder() {
  static const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return folder;
}

}  // namespace cenote::testing
