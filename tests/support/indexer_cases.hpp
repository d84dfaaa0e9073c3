// Cases of the indexer as data: those of tests/data/indexer, and those of ../shared/cases where a checkout has them.
#pragma once

#include <boost/test/unit_test.hpp>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/folders.hpp"

namespace cenote::test {

using nlohmann::json;

/// A file of the shared cases; empty, with a message, where there is none.
inline std::filesystem::path shared_case(std::string_view name) {
  const auto path = cenote::testing::source_folder() / "../shared/cases" / name;
  if (std::filesystem::exists(path)) return path;
  BOOST_TEST_MESSAGE("left out: there is no " << path.string());
  return {};
}

/// A file of the project's own cases.
inline std::filesystem::path own_case(std::string_view name) {
  return cenote::testing::source_folder() / "tests/data/indexer" / name;
}

inline json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  BOOST_REQUIRE_MESSAGE(file, "cannot open " << path.string());
  return json::parse(file);
}

/// The own file and, where it is there, the shared one.
inline std::vector<json> case_files(std::string_view project, std::string_view shared) {
  std::vector<json> files{read_json(own_case(project))};
  if (const auto path = shared_case(shared); !path.empty()) files.push_back(read_json(path));
  return files;
}

/// Numbers beyond 2^53 are decimal text in such files.
inline std::uint64_t number_of(const json& value) {
  if (!value.is_string()) return value.get<std::uint64_t>();
  const auto text = value.get<std::string>();
  std::uint64_t number = 0;
  const auto end = text.data() + text.size();
  BOOST_REQUIRE_MESSAGE(std::from_chars(text.data(), end, number).ptr == end, "no number: " << text);
  return number;
}

inline std::vector<std::byte> bytes_of_hex(std::string_view hex) {
  std::vector<std::byte> bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    unsigned value = 0;
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, value, 16);
    bytes[i] = static_cast<std::byte>(value);
  }
  return bytes;
}

}  // namespace cenote::test
