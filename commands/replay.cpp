#include "commands/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "commands/common.hpp"
#include "commands/replay_options.hpp"
#include "commands/replay_real.hpp"
#include "commands/replay_trace.hpp"
#include "commands/table.hpp"
#include "tiers/eviction/tier_simulation.hpp"
#include "tiers/eviction/workload.hpp"

namespace cenote {

namespace {

using eviction::replay_order;
using eviction::replay_sums;
using eviction::tier_ingest;
using eviction::tier_pair;
using eviction::tier_sums;
using nlohmann::ordered_json;

const std::map<std::string, replay_order> orders{{"fwd", replay_order::forward}, {"rev", replay_order::reverse}};
const std::map<std::string, tier_ingest> ingests{
    {"all", tier_ingest::all}, {"hot", tier_ingest::hot}, {"evicted", tier_ingest::evicted}};

struct replay_options {
  std::string path;
  std::string generated;
  std::size_t limit = 0;
  bool simulate = false;
  std::string capacities;
  std::string policies = "lru,s3fifo,arc,tblru";
  std::string order = "fwd";
  std::string tails = "cut";
  std::string tiers;
  std::string lower_policy = "lru";
  std::string ingest = "evicted";
  bool keep_copy = true;
  bool as_json = false;
  replay::real_options real;
};

// ---------------------------------------------------------------------------------------------- simulating

/// Calls `work(i)` for each i below `count`, on as many threads as there are cores.
void run_all(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto take = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> helpers;
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t i = 1; i < std::min(cores, count); ++i) helpers.emplace_back(take);
  take();
}

/// The policies asked for, each a known one.
result<std::vector<std::string>> parse_policies(const replay_options& options) {
  std::vector<std::string> names;
  for (const std::string_view name : split(options.policies, ',')) names.emplace_back(name);
  for (const std::string& name : names) {
    if (auto known = eviction::check_simulated(name, orders.at(options.order)); !known) {
      return std::unexpected(known.error());
    }
  }
  return names;
}

ordered_json sums_json(const replay_sums& sums) {
  return {{"stream_hits", sums.stream_hits}, {"prefix_hits", sums.prefix_hits}, {"prefix_tokens", sums.prefix_tokens},
          {"blocks", sums.blocks},           {"tokens", sums.tokens},           {"inserts", sums.inserts},
          {"evictions", sums.evictions}};
}

std::string percent(double ratio) {
  return fmt::format("{:.2f}", ratio * 100);
}

// ---------------------------------------------------------------------------------------------- one tier

struct sweep_line {
  std::string policy;
  std::uint32_t capacity = 0;
  replay_sums sums;
};

/// A row a policy, a column a capacity.
std::string matrix_text(const std::vector<sweep_line>& lines, const std::vector<std::uint32_t>& capacities,
                        const std::function<std::string(const replay_sums&)>& cell) {
  std::vector<std::string> heading{"POLICY"};
  for (const std::uint32_t capacity : capacities) heading.push_back(">" + std::to_string(capacity));
  table rows(std::move(heading));
  for (std::size_t i = 0; i < lines.size(); i += capacities.size()) {
    std::vector<std::string> row{lines[i].policy};
    for (std::size_t c = 0; c < capacities.size(); ++c) row.push_back(cell(lines[i + c].sums));
    rows.add(std::move(row));
  }
  return rows.text();
}

void print_sweep(const std::vector<sweep_line>& lines, const std::vector<std::uint32_t>& capacities,
                 const replay_options& options) {
  if (options.as_json) {
    for (const sweep_line& each : lines) {
      ordered_json line{{"policy", each.policy}, {"order", options.order}, {"capacity", each.capacity}};
      line.update(sums_json(each.sums));
      fmt::print("{}\n", line.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    }
    return;
  }
  fmt::print("PREFIX-TOKEN HITS, % of {} tokens, by capacity in blocks\n{}", lines.front().sums.tokens,
             matrix_text(lines, capacities, [](const replay_sums& sums) { return percent(sums.hit_ratio()); }));
  fmt::print("\nBLOCK HITS of {}\n{}", lines.front().sums.blocks,
             matrix_text(lines, capacities, [](const replay_sums& sums) { return std::to_string(sums.stream_hits); }));
}

result<void> run_sweep(const eviction::trace& of, const replay_options& options) {
  const auto capacities = parse_capacities(options.capacities);
  if (!capacities) return std::unexpected(capacities.error());
  const auto policies = parse_policies(options);
  if (!policies) return std::unexpected(policies.error());
  std::vector<sweep_line> lines;
  for (const std::string& policy : *policies) {
    for (const std::uint32_t capacity : *capacities) lines.push_back({policy, capacity, {}});
  }
  run_all(lines.size(), [&](std::size_t i) {
    sweep_line& line = lines[i];
    line.sums = *eviction::simulate(of, line.policy, line.capacity, orders.at(options.order));
  });
  print_sweep(lines, *capacities, options);
  return {};
}

// ---------------------------------------------------------------------------------------------- two tiers

ordered_json tiers_json(const std::string& policy, const tier_sums& sums, const std::vector<named_tier>& tiers,
                        const replay_options& options) {
  ordered_json line{{"policy", policy},
                    {"order", options.order},
                    {"capacity", std::uint64_t{tiers[0].capacity} + tiers[1].capacity},
                    {"tiers", {{tiers[0].name, tiers[0].capacity}, {tiers[1].name, tiers[1].capacity}}},
                    {"lower_policy", options.lower_policy},
                    {"ingest", options.ingest},
                    {"keep_copy", options.keep_copy}};
  line.update(sums_json(sums.both));
  line.update({{"upper_hits", sums.upper_hits},
               {"promoted", sums.promoted},
               {"written", sums.written},
               {"lower_evictions", sums.lower_evictions}});
  return line;
}

std::string tiers_text(const std::vector<std::string>& policies, const std::vector<tier_sums>& sums) {
  table rows({"POLICY", ">HIT %", ">BLOCK HITS", ">ABOVE", ">PROMOTED", ">WRITTEN"});
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const tier_sums& each = sums[i];
    rows.add({policies[i], percent(each.both.hit_ratio()), std::to_string(each.both.stream_hits),
              std::to_string(each.upper_hits), std::to_string(each.promoted), std::to_string(each.written)});
  }
  return rows.text();
}

result<void> run_tiers(const eviction::trace& of, const replay_options& options) {
  const auto tiers = parse_tiers(options.tiers);
  if (!tiers) return std::unexpected(tiers.error());
  const auto policies = parse_policies(options);
  if (!policies) return std::unexpected(policies.error());
  std::vector<result<tier_sums>> all(policies->size());
  run_all(all.size(), [&](std::size_t i) {
    const tier_pair how{.upper_policy = (*policies)[i],
                        .lower_policy = options.lower_policy,
                        .upper_capacity = (*tiers)[0].capacity,
                        .lower_capacity = (*tiers)[1].capacity,
                        .ingest = ingests.at(options.ingest),
                        .keep_copy = options.keep_copy};
    all[i] = eviction::simulate(of, how, orders.at(options.order));
  });
  std::vector<tier_sums> sums;
  for (const auto& each : all) {
    if (!each) return std::unexpected(each.error());
    sums.push_back(*each);
  }
  if (!options.as_json) {
    fmt::print("PREFIX-TOKEN HITS of {} over {} blocks, ingest {}, {}\n{}", (*tiers)[0].capacity, (*tiers)[1].capacity,
               options.ingest, options.keep_copy ? "keeping the copy below" : "exclusive", tiers_text(*policies, sums));
    return {};
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    fmt::print("{}\n", tiers_json((*policies)[i], sums[i], *tiers, options)
                           .dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  }
  return {};
}

exit_code run_simulation(const eviction::trace& of, const replay_options& options) {
  const auto done = options.tiers.empty() ? run_sweep(of, options) : run_tiers(of, options);
  return done ? exit_code::orderly : failed_with(done.error());
}

// ---------------------------------------------------------------------------------------------- the requests

/// A file's requests; its bad lines are named.
result<eviction::trace> read_requests(const std::string& path) {
  auto read = read_trace_file(path);
  if (!read) return std::unexpected(read.error());
  for (const std::string& each : read->complaints) complain({error_code::malformed, each});
  if (read->bad_lines > read->complaints.size()) {
    complain(
        {error_code::malformed, fmt::format("{}: {} more bad lines", path, read->bad_lines - read->complaints.size())});
  }
  return std::move(read->requests);
}

result<eviction::trace> requests_of(const replay_options& options) {
  auto all = options.path.empty() ? eviction::generate(options.generated) : read_requests(options.path);
  if (!all) return all;
  const std::size_t count = options.limit == 0 ? all->requests().size() : options.limit;
  return options.tails == "cut" ? all->full_blocks(count) : all->first(count);
}

/// Before anything is read: what cannot work together.
result<void> check(const replay_options& options) {
  const auto refuse = [](std::string why) { return fail(error_code::invalid_argument, std::move(why)); };
  if (options.path.empty() == options.generated.empty()) {
    return refuse("replay needs either a trace or --generate KIND, as in --generate chat");
  }
  if (options.simulate && options.capacities.empty() == options.tiers.empty()) {
    return refuse("replay --simulate needs either --capacity-sweep or --tiers");
  }
  if (!options.simulate && options.tails != "cut") {
    return refuse("--tails keep simulates: engines hand over full blocks only, so a real node never sees a tail");
  }
  if (!options.simulate && !(options.capacities.empty() && options.tiers.empty())) {
    return refuse("--capacity-sweep and --tiers simulate: add --simulate, or give --dram and --nvme for a real node");
  }
  return {};
}

exit_code run_replay(const replay_options& options) {
  if (auto ok = check(options); !ok) return failed_with(ok.error());
  const auto requests = requests_of(options);
  if (!requests) return failed_with(requests.error());
  if (options.simulate) return run_simulation(*requests, options);
  const std::string& name = options.path.empty() ? options.generated : options.path;
  return replay::run_real(*requests, name, options.real, options.as_json);
}

/// The kinds that --generate knows, for the help.
std::string workloads_text() {
  std::string text;
  for (const auto& kind : eviction::workload_kinds()) {
    text += fmt::format("\n  {}: {}\n", kind.name, kind.meaning);
    for (const auto& each : kind.parameters) {
      text += fmt::format("    {} ({:g}): {}\n", each.name, each.standard, each.meaning);
    }
  }
  return text;
}

}  // namespace

void add_replay(CLI::App& app) {
  auto* command = app.add_subcommand("replay", "Run a trace against a node, or through the eviction policies");
  auto options = std::make_shared<replay_options>();
  command->add_option("trace", options->path, "Requests as Mooncake publishes them, a JSON object a line");
  command->add_option("--generate", options->generated,
                      "Made-up requests in place of a trace: KIND or KIND:name=value,…; see below");
  command->add_option("--limit", options->limit, "Only the first so many requests");
  command->add_flag("--simulate", options->simulate, "Run the policies alone: no memory is moved, no node is needed");
  options->real.add_to(*command);
  command->add_option("--capacity-sweep", options->capacities,
                      "Capacities in blocks: a list, or FIRST:LAST:STEP as in 1k:256k:2x; k is 1,000");
  command
      ->add_option("--policies", options->policies,
                   "Among fifo, lru, lfu, clock, sieve, s3fifo, arc, 2q, mq, tblru, belady")
      ->capture_default_str();
  command->add_option("--order", options->order, "How a request uses its blocks: fwd is head to tail, rev tail to head")
      ->check(CLI::IsMember({"fwd", "rev"}))
      ->capture_default_str();
  command
      ->add_option("--tails", options->tails,
                   "Blocks that are not full of tokens: cut, as engines do, or keep, as published figures do")
      ->check(CLI::IsMember({"cut", "keep"}))
      ->capture_default_str();
  command->add_option("--tiers", options->tiers, "Two tiers, the upper one first, as in dram=1000,nvme=10000");
  command->add_option("--lower-policy", options->lower_policy, "Policy of the lower tier")->capture_default_str();
  command->add_option("--ingest", options->ingest, "What goes down: all, hot (at its second access) or evicted")
      ->check(CLI::IsMember({"all", "hot", "evicted"}))
      ->capture_default_str();
  command->add_option("--keep-copy", options->keep_copy, "Whether a block that goes up stays below, too")
      ->capture_default_str();
  command->add_flag("--json", options->as_json, "One object; simulated, a line for each policy and capacity");
  command->footer("tblru has an order of its own, whatever --order says.\n\nWhat --generate makes:" + workloads_text());
  command->callback([options] { end_with(run_replay(*options)); });
}

}  // namespace cenote
