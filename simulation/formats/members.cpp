#include "simulation/formats/members.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/text.hpp"

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

bool is_natural(std::string_view text, std::uint64_t& number) {
  const auto [behind, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && behind == text.data() + text.size();
}

std::optional<double> number_of(const element& value) {
  double number = 0;
  std::string_view text;
  if (value.get(text) == SUCCESS) {
    const auto [behind, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || behind != text.data() + text.size()) return std::nullopt;
  } else if (value.get(number) != SUCCESS) {
    return std::nullopt;
  }
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

/// A value as it is written, cut.
std::string short_text(const element& value) {
  constexpr std::size_t most = 64;  // bytes
  const std::string text = simdjson::minify(value);
  const std::string_view cut = cut_text(text, most);
  return fmt::format("{}{}", cut, cut.size() < text.size() ? "…" : "");
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

std::optional<double> number_member(const element& object, std::string_view name) {
  const auto value = member_of(object, name);
  return value ? number_of(*value) : std::nullopt;
}

std::string_view present_name(const element& object, std::span<const std::string_view> names) {
  const auto found = std::ranges::find_if(names, [&](std::string_view name) { return has(object, name); });
  return found == names.end() ? std::string_view() : *found;
}

line_result take_block_tokens(const element& object, line_requests& target) {
  const std::string_view name = present_name(object, block_token_names);
  if (name.empty()) return {};
  std::uint64_t tokens = 0;
  if (auto ok = take_tokens(object, name, tokens); !ok) return ok;
  if (tokens == 0 || tokens > most_block_tokens) {
    return bad("block tokens", fmt::format("`{}` is no number of tokens, 1 to {}", name, most_block_tokens));
  }
  if (target.has_block_tokens && tokens != target.block_tokens) {
    return bad("block tokens", fmt::format("`{}` is {}, but the blocks of this trace have {} tokens", name, tokens,
                                           target.block_tokens));
  }
  target.has_block_tokens = true;
  target.block_tokens = tokens;
  return {};
}

bool is_rare_name(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 3> turns{"session_id", "delay", "turns"};
  return std::ranges::find(turns, name) != turns.end() ||
         std::ranges::find(block_token_names, name) != block_token_names.end();
}

line_result take_time(const element& object, std::span<const time_name> names, line_request& target) {
  const auto found = std::ranges::find_if(names, [&](const time_name& each) { return has(object, each.name); });
  if (found == names.end()) return bad(fmt::format("`{}` is missing", names.front().name));
  target.unit = found->unit;
  return take_time(object, found->name, target);
}

line_result take_time(const element& object, std::string_view name, line_request& target) {
  const auto value = member_of(object, name);
  if (!value) return bad(fmt::format("`{}` is missing", name));
  // A whole number only where it is written as one: a double also gives a whole one.
  std::string_view text;
  target.is_whole = value->get(text) == SUCCESS ? is_natural(text, target.whole) : value->get(target.whole) == SUCCESS;
  if (target.is_whole) {
    target.time = static_cast<double>(target.whole);
    return {};
  }
  const auto number = number_of(*value);
  if (!number || !(*number >= 0 && *number < 1e19)) return bad(fmt::format("`{}` is no time", name));
  target.time = *number;
  return {};
}

line_result take_tokens(const element& object, std::string_view name, std::uint64_t& target) {
  const auto value = member_of(object, name);
  if (!value) return bad(fmt::format("`{}` is missing", name));
  const auto number = number_of(*value);
  const bool is_good = number && *number >= 0 && *number <= most_tokens && *number == std::floor(*number);
  if (!is_good) return bad("tokens", fmt::format("`{}` is no number of tokens, 0 to {}", name, most_tokens));
  target = static_cast<std::uint64_t>(*number);
  return {};
}

line_result take_ids(const element& object, std::string_view name, line_requests& target, text_ids* texts) {
  const auto value = member_of(object, name);
  if (!value) return bad(fmt::format("`{}` is missing", name));
  simdjson::dom::array list;
  if (value->get(list) != SUCCESS) return bad(fmt::format("`{}` is no list", name));
  std::size_t numbers = 0;
  std::size_t words = 0;
  for (const element each : list) {
    std::string_view text;
    auto id = word_of(each);
    numbers += id ? 1 : 0;
    if (texts != nullptr && each.get(text) == SUCCESS) {
      ++words;
      id = texts->number(text, target.naming);
    }
    if (!id) return bad("id", fmt::format("`{}` holds {}, not a block's id", name, short_text(each)));
    target.ids.push_back(*id);
  }
  if (numbers > 0 && words > 0) return bad("id forms", fmt::format("`{}` holds numbers beside text", name));
  if (texts == nullptr || numbers + words == 0) return {};
  const id_form form = words > 0 ? id_form::text : id_form::numbers;
  if (target.form != id_form::unknown && target.form != form) {
    return bad("id forms", fmt::format("`{}` holds {}, those of earlier lines {}", name, words > 0 ? "text" : "numbers",
                                       words > 0 ? "numbers" : "text"));
  }
  target.form = form;
  return {};
}

line_result take_instance(const element& object, std::string_view name, std::string_view& target) {
  constexpr std::size_t longest = 1'024;  // bytes: as many names as there are instances stay in memory
  const auto text = text_member(object, name);
  if (!text) return bad(fmt::format("`{}` is missing, or no text", name));
  if (text->size() > longest) return bad(fmt::format("`{}` has over {} bytes", name, longest));
  target = *text;
  return {};
}

line_result take_mask(const element& object, std::string_view name, std::size_t limit, std::vector<bool>& target) {
  const auto value = member_of(object, name);
  if (!value) return bad(fmt::format("`{}` is missing", name));
  std::uint64_t leading = 0;
  if (value->get(leading) == SUCCESS) {
    target.assign(static_cast<std::size_t>(std::min<std::uint64_t>(leading, limit)), true);
    return {};
  }
  simdjson::dom::array mask;
  if (value->get(mask) != SUCCESS) return bad(fmt::format("`{}` is neither a number nor a list", name));
  target.clear();
  for (const element each : mask) {
    bool is_set = false;
    if (each.get(is_set) != SUCCESS) return bad(fmt::format("`{}` holds something else than true and false", name));
    if (target.size() < limit) target.push_back(is_set);
  }
  return {};
}

line_result take_leading(const element& object, std::string_view name, std::size_t limit, std::uint32_t& target) {
  const auto value = member_of(object, name);
  if (!value || value->is_null()) return {};
  std::vector<bool> mask;
  if (auto ok = take_mask(object, name, limit, mask); !ok) return ok;
  target = static_cast<std::uint32_t>(std::ranges::find(mask, false) - mask.begin());
  return {};
}

}  // namespace cenote::formats
