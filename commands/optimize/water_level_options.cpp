#include "commands/optimize/water_level_options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "commands/optimize/refusal.hpp"
#include "commands/replay/options.hpp"
#include "core/text.hpp"

namespace cenote::optimize {

namespace {

using simulation::water_levels;

constexpr std::size_t longest_text = 100;

std::string ticked(std::string_view text) {
  return "`" + printable(cut_text(text, longest_text)) + "`";
}

std::unexpected<error> refuse_levels(std::string_view text) {
  return refuse(
      "--water-levels: " + ticked(text) +
      " is no HIGH:LOW[:BATCH]; right are shares above 0 % and below 100 %, the low one not above the high one, "
      "as in 97%:94%, and a number of blocks, as in 80%:75%:100");
}

/// "97%" as 0.97.
std::optional<double> share_of(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  double share = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), share, std::chars_format::fixed);
  const bool is_whole = bad == std::errc() && end == text.data() + text.size() && std::isfinite(share);
  if (!is_whole || share <= 0 || share >= 100) return std::nullopt;
  return share / 100;
}

}  // namespace

result<water_levels> parse_water_levels(std::string_view text) {
  if (text.empty()) return water_levels{};
  const auto parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) return refuse_levels(text);
  const auto high = share_of(parts[0]);
  const auto low = share_of(parts[1]);
  if (!high || !low || *low > *high) return refuse_levels(text);
  water_levels levels{.high = *high, .low = *low};
  if (parts.size() == 3) {
    const auto batch = parse_block_count(parts[2]);
    if (!batch) return refuse_levels(text);
    levels.batch = *batch;
  }
  return levels;
}

result<tier_levels> parse_tier_levels(std::string_view text) {
  tier_levels all;
  if (text.empty()) return all;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == 0 || equals == std::string_view::npos || equals + 1 == part.size()) {
      return refuse("--water-levels: " + ticked(part) +
                    " names no tier; right is NAME=HIGH:LOW[:BATCH], as in dram=97%:94%");
    }
    const std::string_view name = part.substr(0, equals);
    const auto levels = parse_water_levels(part.substr(equals + 1));
    if (!levels) return std::unexpected(levels.error());
    if (!all.emplace(name, *levels).second) return refuse("--water-levels: " + ticked(name) + " stands there twice");
  }
  return all;
}

void add_tier_levels(CLI::App& command, std::string& text) {
  command.add_option(
      "--water-levels", text,
      "NAME=HIGH:LOW[:BATCH] of tiers, as in dram=97%:94%: when a request leaves more than HIGH of a tier "
      "full, blocks go until it is LOW");
}

result<void> take_tier_levels(std::string_view text, std::span<tier_choice> tiers) {
  const auto by_tier = parse_tier_levels(text);
  if (!by_tier) return std::unexpected(by_tier.error());
  for (const auto& [name, levels] : *by_tier) {
    const auto found = std::ranges::find_if(tiers, [&](const tier_choice& each) { return each.link.name == name; });
    if (found == tiers.end()) return refuse("--water-levels: there is no --tier called " + ticked(name));
    if (found->capacity == "0")
      return refuse("--water-levels: the --tier " + ticked(name) + " has a capacity of 0, which has no levels");
    if (found->policy == "belady")
      return refuse("--water-levels: belady knows none, and with some it is no bound; other policies go with them");
    found->levels = levels;
  }
  return {};
}

std::string text_of_levels(const water_levels& levels) {
  constexpr double percents = 100;
  return fmt::format("{:.9g}%:{:.9g}%{}", levels.high * percents, levels.low * percents,
                     levels.batch > 1 ? fmt::format(":{}", levels.batch) : "");
}

}  // namespace cenote::optimize
