#include "config/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/nearest.hpp"
#include "config/toml_reader.hpp"
#include "core/units.hpp"

namespace cenote::config {
namespace {

/// A refusal without its place; check() adds source, key and value.
using converted = std::expected<typed_value, std::string>;

converted expected_instead(const key_schema& schema) {
  return std::unexpected(fmt::format("must be {}", accepted(schema)));
}

converted to_bytes(const key_schema& schema, const raw_value& raw) {
  if (const auto* number = std::get_if<std::int64_t>(&raw.data); number != nullptr && *number >= 0) {
    return byte_size{static_cast<std::uint64_t>(*number)};
  }
  const auto* text = std::get_if<std::string>(&raw.data);
  if (text == nullptr) return expected_instead(schema);
  const auto parsed = parse_bytes(*text);
  if (!parsed) return std::unexpected(parsed.error().message());
  return byte_size{*parsed};
}

converted to_duration(const key_schema& schema, const raw_value& raw) {
  const auto* number = std::get_if<std::int64_t>(&raw.data);
  if (number != nullptr && *number == 0) return std::chrono::nanoseconds(0);
  const auto* text = std::get_if<std::string>(&raw.data);
  if (text == nullptr) return expected_instead(schema);
  const auto parsed = parse_duration(*text);
  if (!parsed) return std::unexpected(parsed.error().message());
  return *parsed;
}

converted to_ratio(const key_schema& schema, const raw_value& raw) {
  if (const auto* number = std::get_if<double>(&raw.data)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&raw.data)) return static_cast<double>(*number);
  return expected_instead(schema);
}

converted to_choice(const key_schema& schema, const raw_value& raw) {
  const auto* word = std::get_if<std::string>(&raw.data);
  if (word == nullptr) return expected_instead(schema);
  const auto words = choices_of(schema);
  if (std::ranges::find(words, *word) != words.end()) return *word;
  const auto meant = nearest(*word, words);
  return std::unexpected(
      fmt::format("must be {}{}", accepted(schema), meant ? fmt::format("; did you mean `{}`?", *meant) : ""));
}

template <class T>
converted to_scalar(const key_schema& schema, const raw_value& raw) {
  if (const auto* scalar = std::get_if<T>(&raw.data)) return *scalar;
  return expected_instead(schema);
}

template <class T>
converted to_list(const key_schema& schema, const raw_value& raw) {
  const auto* elements = std::get_if<raw_value::list>(&raw.data);
  if (elements == nullptr) return expected_instead(schema);
  std::vector<T> list;
  for (const auto& element : *elements) {
    const auto* scalar = std::get_if<T>(&element.data);
    if (scalar == nullptr) return expected_instead(schema);
    list.push_back(*scalar);
  }
  return list;
}

converted to_ratio_map(const key_schema& schema, const raw_value& raw) {
  const auto* table = std::get_if<std::shared_ptr<const raw_value::inline_table>>(&raw.data);
  if (table == nullptr) return expected_instead(schema);
  std::map<std::string, double> ratios;
  for (const auto& [name, value] : (*table)->entries) {
    auto number = to_ratio(schema, value);
    if (!number) return number;
    ratios.emplace(name, std::get<double>(*number));
  }
  return ratios;
}

converted convert(const key_schema& schema, const raw_value& raw) {
  switch (schema.type) {
    case value_type::string: return to_scalar<std::string>(schema, raw);
    case value_type::integer: return to_scalar<std::int64_t>(schema, raw);
    case value_type::boolean: return to_scalar<bool>(schema, raw);
    case value_type::bytes: return to_bytes(schema, raw);
    case value_type::duration: return to_duration(schema, raw);
    case value_type::ratio: return to_ratio(schema, raw);
    case value_type::choice: return to_choice(schema, raw);
    case value_type::string_list: return to_list<std::string>(schema, raw);
    case value_type::integer_list: return to_list<std::int64_t>(schema, raw);
    case value_type::ratio_map: return to_ratio_map(schema, raw);
  }
  return expected_instead(schema);
}

/// The numbers in a value, as a type that holds every one of them exactly (64 bits of mantissa).
struct numbers_in {
  using numbers = std::vector<long double>;
  numbers operator()(std::int64_t number) const { return {static_cast<long double>(number)}; }
  numbers operator()(byte_size size) const { return {static_cast<long double>(size.bytes)}; }
  numbers operator()(std::chrono::nanoseconds duration) const { return {static_cast<long double>(duration.count())}; }
  numbers operator()(double number) const { return {static_cast<long double>(number)}; }
  numbers operator()(const std::vector<std::int64_t>& list) const { return {list.begin(), list.end()}; }
  numbers operator()(const std::map<std::string, double>& map) const {
    numbers all;
    for (const auto& [name, number] : map) all.push_back(static_cast<long double>(number));
    return all;
  }
  numbers operator()(const auto&) const { return {}; }
};

/// A default or bound of the schema as a value. Texts of strings and choices stand as they are.
raw_value from_schema_text(const key_schema& schema, std::string_view text) {
  const bool words = schema.type == value_type::string || schema.type == value_type::choice;
  return words ? raw_value{std::string(text)} : read_typed(text);
}

long double bound(const key_schema& schema, std::string_view text) {
  auto element = schema;
  if (schema.type == value_type::integer_list) element.type = value_type::integer;
  if (schema.type == value_type::ratio_map) element.type = value_type::ratio;
  return std::visit(numbers_in{}, convert(element, from_schema_text(element, text)).value()).front();
}

bool in_range(const key_schema& schema, const typed_value& candidate) {
  const auto inside = [&schema](long double number) {
    // Written so that a NaN is outside.
    return !std::isnan(number) && (schema.minimum.empty() || number >= bound(schema, schema.minimum)) &&
           (schema.maximum.empty() || number <= bound(schema, schema.maximum));
  };
  return std::ranges::all_of(std::visit(numbers_in{}, candidate), inside);
}

/// A path would end at it.
bool has_zero_byte(const typed_value& candidate) {
  const auto is_cut = [](const std::string& text) { return text.contains('\0'); };
  const auto* const text = std::get_if<std::string>(&candidate);
  const auto* const list = std::get_if<std::vector<std::string>>(&candidate);
  return (text != nullptr && is_cut(*text)) || (list != nullptr && std::ranges::any_of(*list, is_cut));
}

/// Sources without types give a string key the very text, unless it was written as a TOML string.
raw_value typed_as_needed(const key_schema& schema, const raw_entry& entry) {
  const bool words = schema.type == value_type::string || schema.type == value_type::choice;
  if (words && entry.typed && !std::holds_alternative<std::string>(entry.value.data)) return {*entry.typed};
  return entry.value;
}

std::string joined(const auto& list, auto&& text_of) {
  std::string text = "[";
  for (const auto& element : list) text += (text.size() > 1 ? ", " : "") + text_of(element);
  return text + "]";
}

struct toml_writer {
  std::string operator()(const std::string& text) const { return toml_quoted(text); }
  std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
  std::string operator()(bool truth) const { return truth ? "true" : "false"; }
  std::string operator()(byte_size size) const { return size.bytes == 0 ? "0" : toml_quoted(format_bytes(size.bytes)); }
  std::string operator()(std::chrono::nanoseconds duration) const { return toml_quoted(format_duration(duration)); }
  std::string operator()(double number) const {
    auto text = fmt::format("{}", number);
    // TOML tells a float from an integer by its point.
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  std::string operator()(const std::vector<std::string>& list) const { return joined(list, toml_quoted); }
  std::string operator()(const std::vector<std::int64_t>& list) const {
    return joined(list, [](std::int64_t number) { return fmt::format("{}", number); });
  }
  std::string operator()(const std::map<std::string, double>& map) const {
    std::string text = "{";
    for (const auto& [name, number] : map) {
      text += fmt::format("{}{} = {}", text.size() > 1 ? ", " : "", toml_quoted(name), (*this)(number));
    }
    return text + "}";
  }
};

}  // namespace

result<typed_value> check(const key_schema& schema, const raw_entry& entry) {
  const auto raw = typed_as_needed(schema, entry);
  auto accepted_value = convert(schema, raw);
  if (accepted_value && !in_range(schema, *accepted_value)) accepted_value = expected_instead(schema);
  if (accepted_value && has_zero_byte(*accepted_value)) accepted_value = std::unexpected("must not have a zero byte");
  if (accepted_value) return std::move(*accepted_value);
  return fail(error_code::invalid_config,
              fmt::format("{}: {} = {}: {}", entry.source, entry.key, schema.secret ? "(hidden)" : describe(raw),
                          accepted_value.error()));
}

typed_value default_of(const key_schema& schema) {
  return convert(schema, from_schema_text(schema, schema.fallback)).value();
}

std::string to_toml(const typed_value& value) {
  return std::visit(toml_writer{}, value);
}

}  // namespace cenote::config
