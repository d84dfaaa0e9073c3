// A folder of a test's own.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace cenote::manager::test {

/// Made empty, and goes with all that is in it.
class own_folder {
 public:
  own_folder() {
    std::string path = (std::filesystem::temp_directory_path() / "cenote-manager-XXXXXX").native();
    if (::mkdtemp(path.data()) == nullptr) throw std::system_error(errno, std::generic_category(), "mkdtemp");
    path_ = path;
  }
  own_folder(const own_folder&) = delete;
  own_folder& operator=(const own_folder&) = delete;
  ~own_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace cenote::manager::test
