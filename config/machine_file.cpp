#include "config/machine_file.hpp"

#include <system_error>

namespace cenote::config {

std::string machine_file(const std::filesystem::path& root) {
  const auto path = root / "etc/cenote/cenote.toml";
  std::error_code why;
  // Of the link itself: one that leads nowhere is a fault, and no absent file.
  const bool is_absent = std::filesystem::symlink_status(path, why).type() == std::filesystem::file_type::not_found;
  return is_absent ? std::string() : path.native();
}

}  // namespace cenote::config
