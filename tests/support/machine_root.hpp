// A folder in place of "/", for what reads a machine's files.
#pragma once

#include <stdlib.h>  // mkdtemp

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace cenote::testing {

/// Empty at first, and gone with its owner.
struct machine_root {
  machine_root() {
    std::string name = (std::filesystem::temp_directory_path() / "cenote-root-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), "mkdtemp");
    path = name;
  }
  machine_root(const machine_root&) = delete;
  machine_root& operator=(const machine_root&) = delete;
  ~machine_root() { std::filesystem::remove_all(path); }

  /// A file with these lines, the last of which may lack its end.
  void file(const std::filesystem::path& place, const std::string& text) const {
    std::filesystem::create_directories((path / place).parent_path());
    std::ofstream(path / place) << text << (text.ends_with('\n') ? "" : "\n");
  }

  std::filesystem::path path;
};

}  // namespace cenote::testing
