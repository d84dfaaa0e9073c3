#include "config/toml_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>

// The parser stays in this file: header-only, since the distribution's library is built to throw.
#undef TOML_EXCEPTIONS
#undef TOML_HEADER_ONLY
#undef TOML_SHARED_LIB
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "config/schema.hpp"
#include "core/text.hpp"

namespace cenote::config {
namespace {

raw_value to_raw(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return {value->get()};
  if (const auto* value = node.as_integer()) return {value->get()};
  if (const auto* value = node.as_floating_point()) return {value->get()};
  if (const auto* value = node.as_string()) return {value->get()};
  if (const auto* values = node.as_array()) {
    raw_value::list list;
    for (const auto& value : *values) list.push_back(to_raw(value));
    return {std::move(list)};
  }
  if (const auto* values = node.as_table()) {
    auto table = std::make_shared<raw_value::inline_table>();
    for (const auto& [key, value] : *values) table->entries.emplace_back(std::string(key.str()), to_raw(value));
    return {std::shared_ptr<const raw_value::inline_table>(std::move(table))};
  }
  return {raw_value::other{"a date or time"}};
}

bool is_table_key(const std::string& path) {
  const key_schema* const schema = find_key(path);
  return schema != nullptr && schema->type == value_type::ratio_map;
}

struct line_entry {
  std::uint32_t line;
  raw_entry entry;
};

void flatten(const toml::table& table, const std::string& prefix, const std::string& name,
             std::vector<line_entry>& out) {
  for (const auto& [key, node] : table) {
    const auto path = prefix.empty() ? std::string(key.str()) : fmt::format("{}.{}", prefix, key.str());
    const auto* inner = node.as_table();
    if (inner != nullptr && !inner->empty() && !is_table_key(path)) {
      flatten(*inner, path, name, out);
      continue;
    }
    const std::uint32_t line = key.source().begin.line;
    const bool is_empty = inner != nullptr && inner->empty() && !is_table_key(path);
    auto value = is_empty ? raw_value{raw_value::empty_table{}} : to_raw(node);
    out.push_back({line, {path, std::move(value), fmt::format("{}:{}", name, line)}});
  }
}

/// A table as JSON writes it, with colons, as TOML does: outside of quotes.
std::string without_colons(std::string_view text) {
  std::string toml;
  bool is_quoted = false;
  for (const char c : text) {
    if (c == '"') is_quoted = !is_quoted;
    toml += c == ':' && !is_quoted ? '=' : c;
  }
  return toml;
}

raw_value read_bare_list(std::string_view inside) {
  raw_value::list list;
  while (!trimmed(inside).empty()) {
    const auto comma = inside.find(',');
    list.push_back(read_typed(trimmed(inside.substr(0, comma))));
    if (comma == std::string_view::npos) break;
    inside.remove_prefix(comma + 1);
  }
  return {std::move(list)};
}

}  // namespace

result<std::vector<raw_entry>> read_toml(std::string_view text, const std::string& name) {
  const auto parsed = toml::parse(text, name);
  if (!parsed) {
    const auto& where = parsed.error().source().begin;
    return fail(error_code::invalid_config,
                fmt::format("{}:{}:{}: not TOML: {}", name, where.line, where.column, parsed.error().description()));
  }
  std::vector<line_entry> lines;
  flatten(parsed.table(), "", name, lines);
  std::ranges::stable_sort(lines, {}, &line_entry::line);
  std::vector<raw_entry> entries;
  entries.reserve(lines.size());
  for (auto& line : lines) entries.push_back(std::move(line.entry));
  return entries;
}

raw_value read_typed(std::string_view text) {
  const auto value = trimmed(text);
  const bool one_line = value.find_first_of("\r\n") == std::string_view::npos;
  if (one_line) {
    const auto parsed = toml::parse(fmt::format("v = {}\n", value));
    const auto* node = parsed ? parsed.table().get("v") : nullptr;
    if (node != nullptr) return to_raw(*node);
  }
  if (one_line && value.starts_with('{') && value.find(':') != std::string_view::npos) {
    const auto parsed = toml::parse(fmt::format("v = {}\n", without_colons(value)));
    const auto* node = parsed ? parsed.table().get("v") : nullptr;
    if (node != nullptr) return to_raw(*node);
  }
  if (value.starts_with('[') && value.ends_with(']') && value.size() >= 2) {
    return read_bare_list(value.substr(1, value.size() - 2));
  }
  return {std::string(text)};
}

}  // namespace cenote::config
