#include "commands/optimize/instances.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "commands/optimize/trace_summary.hpp"
#include "commands/replay/options.hpp"
#include "config/nearest.hpp"
#include "core/text.hpp"

namespace cenote::optimize {

namespace {

constexpr std::size_t most_instances = 10'000;  ///< of an answer
constexpr std::size_t most_candidates = 1'000;  ///< for a misspelt name: each is compared letter by letter
constexpr std::size_t longest_name = 100;       ///< of those, in bytes

std::string ticked(std::string_view name) {
  return "`" + printable(cut_text(name, longest_name)) + "`";
}

std::unexpected<error> refuse_quota(const std::string& text) {
  return fail(error_code::invalid_argument, "--quota: " + text);
}

/// "; did you mean …?", or nothing.
std::string suggestion(std::string_view name, const std::vector<std::string>& names) {
  if (name.size() > longest_name) return "";
  std::vector<std::string> candidates;
  for (const std::string& each : names) {
    if (each.size() <= longest_name && candidates.size() < most_candidates) candidates.push_back(each);
  }
  const auto meant = config::nearest(name, candidates);
  if (meant) return "; did you mean " + ticked(*meant) + "?";
  return candidates.empty() ? "" : "; one of them is " + ticked(candidates.front());
}

}  // namespace

result<std::vector<instance_quota>> parse_quotas(std::string_view text) {
  std::vector<instance_quota> quotas;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.rfind('=');
    if (equals == 0 || equals == std::string_view::npos) {
      return refuse_quota(ticked(part) + " is no quota; right is INSTANCE=BLOCKS, as in chat=60,code=150");
    }
    const std::string_view number = part.substr(equals + 1);
    const auto blocks = parse_block_count(number, 0, 0);
    if (!blocks) return std::unexpected(blocks.error().in("--quota"));
    quotas.push_back({.name = std::string(part.substr(0, equals)), .blocks = *blocks});
  }
  std::vector<std::string_view> names;
  names.reserve(quotas.size());
  for (const instance_quota& each : quotas) names.push_back(each.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) return refuse_quota(ticked(*twice) + " stands there twice");
  return quotas;
}

result<quota_groups> groups_by_quota(const std::vector<instance_quota>& quotas, const read_trace& read) {
  if (read.instances.empty()) {
    return refuse_quota(fmt::format("a trace of the format {} has no names of instances", read.format));
  }
  constexpr std::uint32_t no_group = ~std::uint32_t{0};
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < read.instances.size(); ++i) numbers.emplace(read.instances[i], i);
  quota_groups groups(read.instances.size(), no_group);
  for (std::uint32_t group = 0; group < quotas.size(); ++group) {
    const std::string_view whole = quotas[group].name;
    const auto members = numbers.contains(whole) ? std::vector{whole} : split(whole, '+');
    for (const std::string_view name : members) {
      const auto place = numbers.find(name);
      if (place == numbers.end()) {
        return refuse_quota("the trace has no instance " + ticked(name) + suggestion(name, read.instances));
      }
      if (groups[place->second] != no_group) return refuse_quota(ticked(name) + " has two quotas");
      groups[place->second] = group;
    }
  }
  for (const simulation::trace::entry& each : read.requests.requests()) {
    if (each.instance < groups.size() && groups[each.instance] != no_group) continue;
    return refuse_quota("the trace's instance " + ticked(instance_name(read, each.instance)) +
                        " has none; each instance needs one");
  }
  return groups;
}

result<void> check_by_instance(const simulation::instance_parts& parts) {
  if (parts.instances().size() <= most_instances) return {};
  return fail(error_code::limit_exceeded,
              fmt::format("--by-instance: the trace has {} instances; up to {} are possible", parts.instances().size(),
                          most_instances));
}

}  // namespace cenote::optimize
