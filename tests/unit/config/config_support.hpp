// What the tests of the configuration share.
#pragma once

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "config/node_config.hpp"

namespace cenote::test {

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// A configuration file in a directory of its own, removed at the end.
class config_file {
 public:
  explicit config_file(std::string_view text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "cenote-config-XXXXXX").string();
    BOOST_REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
    std::ofstream(path(), std::ios::binary) << text;
  }
  config_file(const config_file&) = delete;
  config_file& operator=(const config_file&) = delete;
  ~config_file() { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::filesystem::path path() const { return directory_ / "cenote.toml"; }

  [[nodiscard]] config::config_sources sources() const { return {.file = path(), .environment = {}, .sets = {}}; }

 private:
  std::filesystem::path directory_;
};

inline result<config::node_config> load_text(std::string_view text) {
  const config_file file(text);
  return config::load(file.sources());
}

inline result<config::node_config> load_sets(std::vector<std::string> sets) {
  return config::load({.file = std::nullopt, .environment = {}, .sets = std::move(sets)});
}

inline result<config::node_config> load_environment(std::vector<std::pair<std::string, std::string>> variables) {
  return config::load({.file = std::nullopt, .environment = std::move(variables), .sets = {}});
}

/// The value of a load that must succeed.
inline config::node_config good(result<config::node_config> loaded) {
  BOOST_REQUIRE_MESSAGE(loaded, (loaded ? "" : loaded.error().message()));
  return std::move(*loaded);
}

/// The load failed with invalid_config, and its message has `part` in it.
inline void refused(const result<config::node_config>& loaded, std::string_view part) {
  BOOST_REQUIRE(!loaded);
  BOOST_TEST((loaded.error().code() == error_code::invalid_config));
  BOOST_TEST(contains(loaded.error().message(), part), loaded.error().message() << "\n  lacks: " << part);
}

}  // namespace cenote::test
