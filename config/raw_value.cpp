#include "config/raw_value.hpp"

#include <fmt/format.h>

#include <string_view>

namespace cenote::config {
namespace {

struct describer {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return toml_quoted(value); }
  std::string operator()(const raw_value::empty_table&) const { return "{}"; }
  std::string operator()(const raw_value::other& value) const { return "(" + value.kind + ")"; }
  std::string operator()(const raw_value::list& values) const {
    std::string text = "[";
    for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + describe(value);
    return text + "]";
  }
  std::string operator()(const std::shared_ptr<const raw_value::inline_table>& table) const {
    std::string text = "{";
    for (const auto& [name, value] : table->entries) {
      text += fmt::format("{}{} = {}", text.size() > 1 ? ", " : "", name, describe(value));
    }
    return text + "}";
  }
};

}  // namespace

std::string describe(const raw_value& value) {
  return std::visit(describer{}, value.data);
}

std::string toml_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\u{:04x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace cenote::config
