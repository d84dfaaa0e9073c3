#include "simulation/formats/members.hpp"

#include <fmt/format.h>
#include <simdjson.h>

namespace cenote::formats {

namespace {

using simdjson::SUCCESS;
using simdjson::dom::element;

std::optional<element> member_of(const element& object, std::string_view name) {
  element value;
  if (object[name].get(value) != SUCCESS) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> word_of(const element& value) {
  std::uint64_t natural = 0;
  if (value.get(natural) == SUCCESS) return natural;
  std::int64_t signed_number = 0;
  if (value.get(signed_number) == SUCCESS) return static_cast<std::uint64_t>(signed_number);
  return std::nullopt;
}

}  // namespace

bool has(const element& object, std::string_view name) {
  return member_of(object, name).has_value();
}

std::optional<std::string_view> text_member(const element& object, std::string_view name) {
  std::string_view text;
  if (object[name].get(text) != SUCCESS) return std::nullopt;
  return text;
}

std::optional<std::uint64_t> word_member(const element& object, std::string_view name) {
  const auto value = member_of(object, name);
  return value ? word_of(*value) : std::nullopt;
}

line_result take_time(const element& object, std::string_view name, line_request& target) {
  const auto value = member_of(object, name);
  if (!value) return bad(fmt::format("`{}` is missing", name));
  // A whole number only where it is written as one: a double also gives a whole one.
  target.is_whole = value->get(target.whole) == SUCCESS;
  if (target.is_whole) {
    target.time = static_cast<double>(target.whole);
    return {};
  }
  if (value->get(target.time) != SUCCESS || !(target.time >= 0 && target.time < 1e19)) {
    return bad(fmt::format("`{}` is no time", name));
  }
  return {};
}

line_result take_tokens(const element& object, std::string_view name, std::uint64_t& target) {
  const auto value = member_of(object, name);
  if (!value) return bad(fmt::format("`{}` is missing", name));
  if (value->get(target) != SUCCESS || target > most_tokens) {
    return bad("tokens", fmt::format("`{}` is no number of tokens, 0 to {}", name, most_tokens));
  }
  return {};
}

line_result take_ids(const element& object, std::string_view name, id_form form, huge_vector<std::uint64_t>& ids) {
  const auto value = member_of(object, name);
  if (!value) return bad(fmt::format("`{}` is missing", name));
  simdjson::dom::array list;
  if (value->get(list) != SUCCESS) return bad(fmt::format("`{}` is no list", name));
  for (const element each : list) {
    std::uint64_t natural = 0;
    auto id = word_of(each);
    if (form == id_form::natural && each.get(natural) != SUCCESS) id.reset();
    if (!id) return bad("id", fmt::format("`{}` holds {}, not a block's id", name, simdjson::minify(each)));
    ids.push_back(*id);
  }
  return {};
}

}  // namespace cenote::formats
