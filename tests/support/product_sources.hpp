// The product's sources, for tests that find what was added to them without its row, level or reason.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/folders.hpp"

namespace cenote::testing {

/// Such tests run without sanitizers, which see nothing in them and make them ten times as slow:
/// BOOST_AUTO_TEST_CASE(name, *boost::unit_test::enable_if<testing::reads_sources>()).
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool reads_sources = false;
#else
inline constexpr bool reads_sources = true;
#endif

struct source_file {
  std::string path;  ///< from the root of the sources
  std::string text;
};

/// All C++ files of these folders, in the order of their paths.
inline std::vector<source_file> product_sources(std::initializer_list<const char*> folders) {
  const std::filesystem::path& root = cenote::testing::source_folder();
  std::vector<source_file> files;
  for (const char* folder : folders) {
    for (const auto& each : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (each.path().extension() != ".hpp" && each.path().extension() != ".cpp") continue;
      std::ostringstream text;
      text << std::ifstream(each.path()).rdbuf();
      files.push_back({each.path().lexically_relative(root).string(), text.str()});
    }
  }
  std::ranges::sort(files, {}, &source_file::path);
  return files;
}

}  // namespace cenote::testing
