#include "commands/optimize/tier_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "commands/replay/options.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::optimize {

namespace {

constexpr std::size_t most_tiers = 4;
// Lookup, prefetch and copy on servers of the day (docs/optimize.md); capacities are open.
constexpr std::string_view usual_dram = "dram:0.5ms:20GB/s";
constexpr std::string_view usual_nvme = "nvme:2ms:3GB/s";
enum tier_part : std::size_t {
  name_part,
  latency_part,
  bandwidth_part,
  capacity_part,
  policy_part,
  ingest_part,
  keep_part
};

std::unexpected<error> refuse_tier(std::string_view text, std::string_view reason) {
  return fail(error_code::invalid_argument,
              fmt::format("--tier `{}`: {}; right is NAME:LATENCY:BANDWIDTH[:CAPACITY[:POLICY[:INGEST[:KEEP]]]], as in "
                          "dram:0.5ms:20GB/s or nvme:2ms:3GB/s:100k:lru:evicted:true",
                          text, reason));
}

/// Bytes a second in "20GB/s".
result<double> parse_bandwidth(std::string_view text) {
  if (!text.ends_with("/s")) return fail(error_code::invalid_argument, "a bandwidth is bytes a second, as in 20GB/s");
  const auto bytes = parse_bytes(text.substr(0, text.size() - 2));
  if (!bytes) return std::unexpected(bytes.error());
  if (*bytes == 0) return fail(error_code::invalid_argument, "a bandwidth is above 0");
  return static_cast<double>(*bytes);
}

}  // namespace

result<tier_choice> parse_tier_choice(std::string_view text) {
  auto parts = split(text, ':');
  if (parts.size() <= bandwidth_part || parts.size() > keep_part + std::size_t{1}) {
    return refuse_tier(text, "three to seven parts were expected");
  }
  parts.resize(keep_part + std::size_t{1});
  if (!is_plain_name(parts[name_part])) return refuse_tier(text, "a name is letters, digits, `.`, `_` and `-`");
  tier_choice tier{.link = {}, .capacity = std::string(parts[capacity_part]), .ingest = {}};
  tier.link.name = parts[name_part];
  const auto latency = parse_duration(parts[latency_part]);
  if (!latency) return refuse_tier(text, latency.error().message());
  tier.link.latency = std::chrono::duration<double>(*latency).count();
  const auto bandwidth = parse_bandwidth(parts[bandwidth_part]);
  if (!bandwidth) return refuse_tier(text, bandwidth.error().message());
  tier.link.bandwidth = *bandwidth;
  if (!parts[policy_part].empty()) tier.policy = parts[policy_part];
  if (!parts[ingest_part].empty()) {
    tier.ingest = enum_named<ingest>(parts[ingest_part]);
    if (!tier.ingest) {
      return refuse_tier(text, fmt::format("ingest is one of {}", fmt::join(enumerator_names<ingest>(), ", ")));
    }
  }
  const std::string_view copy = parts[keep_part];
  if (!copy.empty() && copy != "true" && copy != "false") return refuse_tier(text, "keep is true or false");
  tier.keep_copy = copy != "false";
  return tier;
}

result<std::uint32_t> own_capacity(const tier_choice& tier, std::uint64_t block_bytes) {
  if (tier.capacity.empty() || tier.capacity == "0") return 0U;
  const auto count = parse_block_count(tier.capacity, block_bytes);
  if (!count) return std::unexpected(count.error().in("--tier"));
  return *count;
}

void tier_options::add_to(CLI::App& command) {
  command
      .add_option("--tier", tiers,
                  "NAME:LATENCY:BANDWIDTH[:CAPACITY[:POLICY[:INGEST[:KEEP]]]], as in dram:0.5ms:20GB/s; again for "
                  "each tier, the nearest first; GB is 10^9 bytes, GiB 2^30")
      ->allow_extra_args(false);
}

result<std::vector<tier_choice>> tier_options::choices() const {
  std::vector<tier_choice> all;
  if (tiers.size() > most_tiers) {
    return fail(error_code::invalid_argument, fmt::format("--tier: over {} of them", most_tiers));
  }
  for (const std::string& each : tiers) {
    auto tier = parse_tier_choice(each);
    if (!tier) return std::unexpected(tier.error());
    const auto is_same = [&](const tier_choice& earlier) { return earlier.link.name == tier->link.name; };
    if (std::ranges::any_of(all, is_same)) return refuse_tier(each, "there is one of this name already");
    if (tier->link.name == "gpu" && !all.empty()) {
      return refuse_tier(each, "gpu is a device's memory, above DRAM: it stands first");
    }
    all.push_back(std::move(*tier));
  }
  return all;
}

result<std::vector<tier_choice>> tier_options::usual_choices(std::string_view prices) const {
  if (!tiers.empty()) return choices();
  tier_options usual;
  usual.tiers.emplace_back(usual_dram);
  const auto priced = split(prices, ',');
  const auto is_nvme = [](std::string_view each) { return each.starts_with("nvme="); };
  if (std::ranges::any_of(priced, is_nvme)) usual.tiers.emplace_back(usual_nvme);
  fmt::print(stderr, "cenote: no --tier, so those of a usual host: --tier {}\n", fmt::join(usual.tiers, " --tier "));
  return usual.choices();
}

}  // namespace cenote::optimize
