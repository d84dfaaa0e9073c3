#include "commands/optimize/verification.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/optimize/figures_text.hpp"
#include "commands/optimize/plan_answer.hpp"
#include "commands/optimize/refusal.hpp"
#include "commands/replay/run.hpp"
#include "commands/replay/sizes.hpp"
#include "commands/table.hpp"
#include "core/units.hpp"
#include "tiers/eviction/registry.hpp"
#include "tiers/nvme/devices.hpp"

namespace cenote::optimize {

namespace {

using simulation::tier_setup;
using simulation::tier_setups;

constexpr std::uint64_t least_block = 4 * KiB;
constexpr std::uint64_t largest_block = 4 * MiB;  // an extent of an NVMe path, which holds whole blocks
constexpr std::uint64_t least_dram = MiB;
constexpr std::uint64_t extent = 4 * MiB;
constexpr std::uint64_t least_space = 52 * MiB;   // of the smallest NVMe path, for blocks
constexpr std::uint64_t exact_space = 128 * MiB;  // of which the last extent is a thirty-second
constexpr std::uint64_t least_metadata = 8 * MiB;
constexpr std::uint64_t metadata_part = 31;  // a thirty-second of all, so one part in 31 of the blocks
constexpr std::uint64_t spare_part = 32;
constexpr double lru_bound = 0.5;    // points
constexpr double other_bound = 1.5;  // with a tier below, or another policy
constexpr double largest_rate = 1e9;
constexpr auto patience = std::chrono::minutes(1);
// As measured; for the estimate before the first run, no more.
constexpr double start_s = 1;
constexpr double block_s = 1e-5;
constexpr double byte_s = 1e-9;

bool goes_by_time(std::string_view policy) {
  return policy == "tblru" || policy == "auto";
}

result<void> check_policy(const std::string& policy, bool is_dram) {
  const auto* const known = eviction::find_policy(policy);
  const bool is_fit = known != nullptr && (known->use == eviction::policy_use::tiers ||
                                           (is_dram && known->use == eviction::policy_use::requests));
  if (is_fit) return {};
  return refuse(fmt::format("--verify: {} of a node has no policy `{}`; right are {}", is_dram ? "DRAM" : "NVMe",
                            policy, is_dram ? eviction::choices_of_requests() : eviction::choices_of_blocks()));
}

std::uint64_t at_least(std::uint64_t bytes, std::uint64_t blocks) {
  return (bytes + blocks - 1) / blocks;
}

/// Bytes of the NVMe tier that has room for so many bytes of blocks.
std::uint64_t nvme_with(std::uint64_t bytes) {
  const std::uint64_t space = std::max(least_space, (bytes + extent - 1) / extent * extent);
  return space + extent + std::max(least_metadata, at_least(space, metadata_part));
}

/// Bytes of blocks that the NVMe tier of so many bytes has at most.
std::uint64_t space_of(std::uint64_t nvme_bytes) {
  return nvme::budget_of(nvme_bytes).data_bytes / extent * extent;
}

/// Blocks of the trace that the tier may have: of one with water levels as many as let all stay.
std::uint64_t replayed_blocks(const tier_setup& tier, std::uint32_t distinct) {
  const double most = std::ceil(std::max(1U, distinct) / tier.levels.high) + (tier.levels.are_used() ? 1 : 0);
  return static_cast<std::uint64_t>(std::min(most, static_cast<double>(tier.capacity)));
}

/// The levels of `tier`, of whose room in the node `share` is the plan's.
result<replayed_marks> marks_with(const tier_setup& tier, double share) {
  const replayed_marks marks{.high = std::min(1.0, tier.levels.high * share),
                             .low = std::min(1.0, tier.levels.low * share)};
  if (marks.low >= least_mark) return marks;
  if (!tier.levels.are_used()) return replayed_marks{.high = least_mark, .low = least_mark};
  return fail(error_code::unsupported,
              fmt::format("--verify: a node has room in its `{}` beside the plan's blocks, of which its low water mark "
                          "would be {:.1f} %: the smallest that there is are 10 %",
                          tier.link.name, marks.low * 100));
}

/// The smallest of those in doubles of `least_bytes` with which a tier of `blocks` has room for all their metadata.
std::uint64_t block_with_metadata(std::uint64_t blocks, std::uint64_t least_bytes) {
  std::uint64_t bytes = least_bytes;
  while (bytes < largest_block && nvme::budget_of(nvme_with(blocks * bytes)).max_blocks < blocks) bytes *= 2;
  return bytes;
}

const tier_setup* tier_named(const tier_setups& plan, std::string_view name) {
  const auto outcome =
      std::ranges::find_if(plan, [&](const tier_setup& each) { return each.link.name == name && each.capacity > 0; });
  return outcome == plan.end() ? nullptr : &*outcome;
}

/// A node that does what a simulation does: it counts cached blocks alone, holds as many as the plan, and waits
/// for its loads.
std::vector<std::string> settings_with(const tier_setups& plan, const replayed_tiers& tiers) {
  std::vector<std::string> sets{"dram.grants_in_capacity=false", "dram.populate=false",
                                fmt::format("dram.high_water={:.9f}", tiers.dram_marks.high),
                                fmt::format("dram.low_water={:.9f}", tiers.dram_marks.low)};
  const tier_setup* const nvme = tier_named(plan, "nvme");
  if (nvme == nullptr) return sets;
  sets.insert(sets.end(), {"prefetch.prefill_tokens_per_s=0", "prefetch.assumed_tokens_per_s=0", "prefetch.base=1m",
                           "prefetch.threshold_tokens=0"});
  sets.push_back(fmt::format("nvme.high_water={:.9f}", tiers.nvme_marks.high));
  sets.push_back(fmt::format("nvme.low_water={:.9f}", tiers.nvme_marks.low));
  sets.push_back("nvme.policy=" + nvme->policy);
  sets.push_back(fmt::format("nvme.ingest={}", name_of(nvme->ingest)));
  sets.push_back(fmt::format("nvme.keep_copy={}", nvme->keep_copy));
  return sets;
}

replay::run_options options_with(const tier_setups& plan, const replayed_tiers& tiers, double rate) {
  replay::run_options options;
  options.engines = 1;
  options.workers = 1;
  options.block_bytes = tiers.block_bytes;
  options.verify = replay::verify_mode::sample;
  options.prefetch_wait = patience;
  options.prefill_rate = rate >= 1 && rate <= largest_rate ? rate : 0;
  options.dram = tiers.dram;
  options.nvme = tiers.nvme;
  options.policy = tier_named(plan, "dram")->policy;
  options.sets = settings_with(plan, tiers);
  return options;
}

/// The estimate before the first run.
void announce(const simulation::trace& requests, const replayed_tiers& tiers, std::size_t runs) {
  const auto blocks = static_cast<double>(requests.stream().size());
  const double each = start_s + blocks * (block_s + byte_s * static_cast<double>(tiers.block_bytes));
  complain(
      {error_code::ok, fmt::format("--verify: {} requests, {} time{} through a node with blocks of {}: about {:.0f} s",
                                   requests.requests().size(), runs, runs == 1 ? "" : "s",
                                   format_bytes(tiers.block_bytes), std::ceil(each * static_cast<double>(runs)))});
}

/// The same blocks on the same links, as a replay counts: one request at a time, attention and the constant for free.
result<first_token> planned_first_token(const simulation::trace& requests, const tier_setups& plan,
                                        simulation::cost_model cost, std::uint64_t block_bytes) {
  cost.prefill = {.rate = cost.prefill.rate};
  cost.bytes_per_token = static_cast<double>(block_bytes) / static_cast<double>(requests.block_tokens());
  cost.overlap = simulation::load_overlap::none;
  cost.gate = simulation::load_gate::open;
  const auto served = simulation::serve_trace(requests, plan, simulation::replay_order::reverse, cost, 0);
  if (!served) return std::unexpected(served.error());
  std::vector<double> seconds;
  seconds.reserve(served->requests.size());
  for (const auto& each : served->requests) seconds.push_back(each.service);
  std::ranges::sort(seconds);
  return first_token{.p50 = simulation::nearest_rank(seconds, 50), .p90 = simulation::nearest_rank(seconds, 90)};
}

std::size_t longest_request(const simulation::trace& requests) {
  std::size_t longest = 0;
  for (const auto& each : requests.requests()) longest = std::max(longest, each.count);
  return longest;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return simulation::nearest_rank(values, 50);
}

/// Figures of each run.
struct run_figures {
  std::vector<double> hits;
  std::vector<double> from_dram;
  std::vector<double> p50;
  std::vector<double> p90;
  std::uint64_t dropped = 0;

  void add(const replay::replay_result& ran) {
    constexpr double ns_per_s = 1e9;
    const auto tokens = static_cast<double>(ran.sums->tokens.get());
    hits.push_back(ran.hit_ratio());
    from_dram.push_back(replay::ratio(static_cast<double>(ran.sums->upper_tokens.get()), tokens));
    p50.push_back(static_cast<double>(ran.sums->with_lower.quantile(0.5)) / ns_per_s);
    p90.push_back(static_cast<double>(ran.sums->with_lower.quantile(0.9)) / ns_per_s);
    dropped += ran.moved.dropped;
  }
};

result<run_figures> replay_all(const simulation::trace& requests, const replay::run_options& options,
                               std::size_t runs) {
  run_figures figures;
  for (std::size_t i = 0; i < runs; ++i) {
    const auto ran = replay::run(requests, options);
    if (auto go_on = check_interrupted(); !go_on) return std::unexpected(go_on.error());
    if (!ran) return std::unexpected(ran.error().in("--verify"));
    if (!ran->failures.empty()) {
      return fail(error_code::internal, fmt::format("--verify: the replay failed: {}", ran->failures.front()));
    }
    figures.add(*ran);
  }
  return figures;
}

}  // namespace

void verification_options::add_to(CLI::App& command) {
  command.add_flag(
      "--verify", is_wanted,
      "Replay the trace through a node of its own with the plan's tiers in small blocks, and compare hits");
  command.add_option("--verify-runs", runs, fmt::format("How many times; without it {}", standard_runs))
      ->check(CLI::Range(std::size_t{1}, most_runs));
}

result<void> verification_options::check(std::span<const tier_choice> tiers,
                                         std::span<const std::string> policies) const {
  if (!is_wanted) {
    if (runs > 0) return refuse("--verify-runs is for --verify: add it, or leave this out");
    return {};
  }
  for (const tier_choice& each : tiers) {
    const bool is_first = &each == &tiers.front();
    if (each.link.name == "gpu") {
      return refuse("--verify replays a node, and `gpu` is the engine's own cache: leave out that --tier, or --verify");
    }
    if (each.link.name != (is_first ? "dram" : "nvme")) {
      return refuse(
          fmt::format("--verify replays a node of this machine, with the tier dram and below it nvme, or without: `{}` "
                      "is none that "
                      "it has there; leave out that --tier, or --verify",
                      each.link.name));
    }
    if (auto good = check_policy(each.policy, is_first); !good) return good;
    if (each.levels.batch > 1) {
      return refuse(
          fmt::format("--verify replays a node, whose `{}` ends at its low mark to the block: leave the "
                      "batch out of --water-levels, or --verify",
                      each.link.name));
    }
  }
  for (const std::string& each : policies) {
    if (auto good = check_policy(each, true); !good) return good;
  }
  return {};
}

result<replayed_tiers> tiers_for_replay(const tier_setups& plan, const replay_load& load, const replay_room& room) {
  const tier_setup* const dram = tier_named(plan, "dram");
  const tier_setup* const nvme = tier_named(plan, "nvme");
  if (dram == nullptr) return fail(error_code::unsupported, "--verify: the plan is without DRAM, which a node has");
  const auto blocks_in = [&](const tier_setup& tier) { return replayed_blocks(tier, load.distinct); };
  replayed_tiers tiers{.block_bytes = least_block, .dram = 0, .nvme = 0};
  std::uint64_t least = at_least(least_dram, blocks_in(*dram));
  if (nvme != nullptr) least = std::max(least, at_least(exact_space, blocks_in(*nvme)));
  while (tiers.block_bytes < least && tiers.block_bytes < largest_block) tiers.block_bytes *= 2;
  if (nvme != nullptr) tiers.block_bytes = block_with_metadata(blocks_in(*nvme), tiers.block_bytes);
  const std::uint64_t blocks = blocks_in(*dram);
  std::uint64_t spare = 0;
  if (nvme != nullptr) {
    spare = 2 * std::uint64_t{load.longest_request} + blocks / spare_part;
    const std::uint64_t below = blocks_in(*nvme) * tiers.block_bytes;
    tiers.nvme = nvme_with(below);
    if (nvme->levels.are_used()) {
      const auto marks = marks_with(*nvme, static_cast<double>(below) / static_cast<double>(space_of(tiers.nvme)));
      if (!marks) return std::unexpected(marks.error());
      tiers.nvme_marks = *marks;
    }
  }
  tiers.dram = (blocks + spare) * tiers.block_bytes;
  const auto marks = marks_with(*dram, static_cast<double>(blocks) / static_cast<double>(blocks + spare));
  if (!marks) return std::unexpected(marks.error());
  tiers.dram_marks = *marks;
  if (tiers.dram > room.memory / 2 || tiers.nvme > room.disk / 2) {
    const bool is_memory = tiers.dram > room.memory / 2;
    return fail(error_code::limit_exceeded,
                fmt::format("--verify: even with blocks of {} the {} takes {}, over half of the {} that is free",
                            format_bytes(tiers.block_bytes), is_memory ? "DRAM" : "NVMe",
                            approximate_bytes(is_memory ? tiers.dram : tiers.nvme),
                            approximate_bytes(is_memory ? room.memory : room.disk)));
  }
  return tiers;
}

double verification::points_apart() const noexcept {
  constexpr double points = 100;
  return std::abs(replayed - planned) * points;
}

result<verification> verify_plan(const simulation::trace& requests, const simulation::plan_candidate& plan,
                                 const simulation::cost_model& cost, std::size_t runs) {
  const auto room = replay::room_of({});
  const replay_load load{.distinct = requests.distinct(), .longest_request = longest_request(requests)};
  const auto tiers = tiers_for_replay(plan.tiers, load, {.memory = room.memory, .disk = room.disk});
  if (!tiers) return std::unexpected(tiers.error());
  const auto options = options_with(plan.tiers, *tiers, cost.prefill.rate);
  announce(requests, *tiers, runs);
  watch_for_interruption();
  const auto figures = replay_all(requests, options, runs);
  if (!figures) return std::unexpected(figures.error());
  const bool is_lru_alone = tiers->nvme == 0 && options.policy == "lru";
  const auto tokens = static_cast<double>(requests.tokens());
  const auto [lowest, highest] = std::ranges::minmax(figures->hits);
  verification outcome{.runs = runs,
                       .planned = replay::ratio(static_cast<double>(plan.hit_tokens), tokens),
                       .replayed = median(figures->hits),
                       .lowest = lowest,
                       .highest = highest,
                       .bound = is_lru_alone ? lru_bound : other_bound,
                       .from_dram = median(figures->from_dram),
                       .dropped = figures->dropped,
                       .block_bytes = tiers->block_bytes,
                       .goes_by_time = goes_by_time(options.policy),
                       .ttft_planned = {},
                       .ttft_replayed = {}};
  if (options.prefill_rate <= 0) return outcome;
  const auto planned = planned_first_token(requests, plan.tiers, cost, tiers->block_bytes);
  if (!planned) return std::unexpected(planned.error());
  outcome.ttft_planned = *planned;
  outcome.ttft_replayed = {.p50 = median(figures->p50), .p90 = median(figures->p90)};
  return outcome;
}

bool has_cache(const simulation::plan_candidate& plan) noexcept {
  return std::ranges::any_of(plan.tiers, [](const tier_setup& each) { return each.capacity > 0; });
}

nlohmann::ordered_json json_of(const verification& outcome) {
  using nlohmann::ordered_json;
  const auto times = [](const std::optional<first_token>& each) {
    return each ? ordered_json{{"p50", each->p50}, {"p90", each->p90}} : ordered_json(nullptr);
  };
  return {{"runs", outcome.runs},
          {"block_bytes", outcome.block_bytes},
          {"hit_ratio_planned", outcome.planned},
          {"hit_ratio_replayed", outcome.replayed},
          {"hit_ratio_lowest", outcome.lowest},
          {"hit_ratio_highest", outcome.highest},
          {"hit_ratio_dram", outcome.from_dram},
          {"points_apart", outcome.points_apart()},
          {"bound", outcome.bound},
          {"kept", outcome.holds()},
          {"ttft_planned", times(outcome.ttft_planned)},
          {"ttft_replayed", times(outcome.ttft_replayed)}};
}

std::string text_of(const verification& outcome) {
  table rows({"AGAINST A REPLAY", ">PLANNED", ">REPLAYED", "APART"});
  std::string apart = fmt::format("{:.2f} points, bound {:.1f}", outcome.points_apart(), outcome.bound);
  if (outcome.runs > 1) {
    apart += fmt::format("; {} runs, {} to {}", outcome.runs, percent(outcome.lowest), percent(outcome.highest));
  }
  rows.add({"hits, of the tokens", percent(outcome.planned), percent(outcome.replayed), std::move(apart)});
  if (outcome.ttft_planned && outcome.ttft_replayed) {
    const auto add = [&](std::string name, double planned, double replayed) {
      rows.add({std::move(name), seconds_text(planned), seconds_text(replayed),
                planned > 0 ? fmt::format("{:+.2f} %", (replayed / planned - 1) * 100) : ""});
    };
    add("ttft_p50 without waiting", outcome.ttft_planned->p50, outcome.ttft_replayed->p50);
    add("ttft_p90 without waiting", outcome.ttft_planned->p90, outcome.ttft_replayed->p90);
  }
  return fmt::format("\n{}", rows.text());
}

std::string missed_text(const verification& outcome) {
  std::string text = fmt::format(
      "--verify: the replay hit {} of the tokens where the plan says {}: {:.2f} points apart, over the bound of {:.1f}",
      percent(outcome.replayed), percent(outcome.planned), outcome.points_apart(), outcome.bound);
  if (outcome.dropped > 0) text += fmt::format("; {} blocks left DRAM without a copy below", outcome.dropped);
  if (outcome.goes_by_time) text += "; the policy goes by times, which a replay back to back has not";
  return text;
}

}  // namespace cenote::optimize
