// A folder of a test's own, with a short path: sockets have to fit into one.
#pragma once

#include <stdlib.h>

#include <array>
#include <filesystem>
#include <system_error>

namespace cenote::indexer {

/// Goes with all that is in it.
class own_folder {
 public:
  own_folder() {
    auto path = std::to_array("/tmp/cenote-text-XXXXXX");
    if (::mkdtemp(path.data()) == nullptr) throw std::system_error(errno, std::generic_category(), "mkdtemp");
    path_ = path.data();
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

}  // namespace cenote::indexer
