#include "config/sources.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "config/schema.hpp"
#include "config/toml_reader.hpp"
#include "core/text.hpp"

namespace cenote::config {
namespace {

result<std::string> read_file(const std::filesystem::path& path) {
  const auto refuse = [&path](std::string_view reason) {
    return fail(error_code::invalid_config,
                fmt::format("{}: the configuration file cannot be read: {}", path.string(), reason));
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return refuse("it is a directory");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return refuse(std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return refuse("reading failed");
  return text;
}

/// "CENOTE_DRAM__HIGH_WATER" -> "dram.high_water"; nothing for variables that are not configuration.
std::optional<std::string> key_of_variable(std::string_view name) {
  constexpr std::string_view prefix = "CENOTE_";
  if (!name.starts_with(prefix) || name.starts_with("CENOTE_TEST_")) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (name.find("__") == std::string_view::npos) return std::nullopt;
  std::string key;
  while (!name.empty()) {
    const bool dot = name.starts_with("__");
    key += dot ? '.' : static_cast<char>(std::tolower(static_cast<unsigned char>(name.front())));
    name.remove_prefix(dot ? 2 : 1);
  }
  return key;
}

std::string upper_case(std::string_view text) {
  std::string upper;
  for (const char c : text) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

/// "DRAM_HIGH_WATER" of "dram.high_water", with `dot` for each dot.
std::string variable_of(std::string_view key, std::string_view dot) {
  std::string name;
  for (const char c : key) name += c == '.' ? std::string(dot) : std::string(1, c);
  return upper_case(name);
}

/// The variable of the key that `name` is but for underscores and the case of letters. The part of a key that users
/// name may be anything, so that such keys are compared by what stands around it.
std::optional<std::string> near_variable(std::string_view name) {
  std::string bare = upper_case(name);
  const auto is_repeated = [](char a, char b) { return a == '_' && b == '_'; };
  bare.erase(std::unique(bare.begin(), bare.end(), is_repeated), bare.end());
  for (const key_schema& each : all_keys()) {
    const std::string flat = variable_of(each.name, "_");
    const auto begin = flat.find('<');
    if (begin == std::string::npos) {
      if (bare == flat) return variable_of(each.name, "__");
      continue;
    }
    const std::string_view head = std::string_view(flat).substr(0, begin);
    const std::string_view tail = std::string_view(flat).substr(flat.find('>') + 1);
    if (bare.size() <= head.size() + tail.size() || !bare.starts_with(head) || !bare.ends_with(tail)) continue;
    const std::string chosen = bare.substr(head.size(), bare.size() - head.size() - tail.size());
    return fmt::format("{}__{}__{}", head.substr(0, head.size() - 1), chosen, tail.substr(1));
  }
  return std::nullopt;
}

/// `groups."team a".quota` -> `groups.team a.quota`, as the file's reader gives it.
std::string without_quotes(std::string_view key) {
  std::string bare;
  for (const char c : key) {
    if (c != '"') bare += c;
  }
  return bare;
}

raw_entry typed_entry(std::string key, std::string_view text, std::string source) {
  return {std::move(key), read_typed(text), std::move(source), std::string(text)};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> process_environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::vector<std::string> near_misses(const std::vector<std::pair<std::string, std::string>>& environment) {
  constexpr std::string_view prefix = "CENOTE_";
  std::vector<std::string> sentences;
  for (const auto& [name, value] : environment) {
    if (!upper_case(name).starts_with(prefix) || key_of_variable(name)) continue;
    if (const auto near = near_variable(std::string_view(name).substr(prefix.size()))) {
      sentences.push_back(fmt::format("the environment variable {} does nothing; did you mean CENOTE_{}?",
                                      printable(name), printable(*near)));
    }
  }
  return sentences;
}

result<std::vector<raw_entry>> gather(const config_sources& sources) {
  std::vector<raw_entry> entries;
  if (sources.file) {
    const auto text = read_file(*sources.file);
    if (!text) return std::unexpected(text.error());
    auto from_file = read_toml(*text, sources.file->string());
    if (!from_file) return std::unexpected(from_file.error());
    entries = std::move(*from_file);
  }
  for (const auto& [name, text] : sources.environment) {
    auto key = key_of_variable(name);
    if (key) entries.push_back(typed_entry(std::move(*key), text, fmt::format("environment variable {}", name)));
  }
  for (const std::string_view option : sources.sets) {
    const auto equals = option.find('=');
    const auto key = trimmed(option.substr(0, equals));
    if (equals == std::string_view::npos || key.empty()) {
      return fail(error_code::invalid_config,
                  fmt::format("--set {}: must be key=value, as in dram.capacity=4GiB", option));
    }
    entries.push_back(typed_entry(without_quotes(key), option.substr(equals + 1), "--set"));
  }
  return entries;
}

}  // namespace cenote::config
