// A directory of a test's own on a real file system.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace cenote::nvme {

/// Made empty, and removed with all that is in it. Not thread-safe.
class temporary_directory {
 public:
  temporary_directory() : path_((std::filesystem::temp_directory_path() / "cenote-nvme-XXXXXX").native()) {
    BOOST_REQUIRE(::mkdtemp(path_.data()) != nullptr);
  }
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;
  ~temporary_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace cenote::nvme
