#include "commands/replay/replay.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/common.hpp"
#include "commands/replay/compare.hpp"
#include "commands/replay/options.hpp"
#include "commands/replay/page.hpp"
#include "commands/replay/parallel.hpp"
#include "commands/replay/real.hpp"
#include "commands/replay/simulated_pools.hpp"
#include "commands/replay/simulated_report.hpp"
#include "commands/replay/trace.hpp"
#include "commands/table.hpp"
#include "core/choices.hpp"
#include "core/units.hpp"
#include "simulation/stack_distances.hpp"
#include "simulation/tier_simulation.hpp"
#include "simulation/workload.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote {

namespace {

using nlohmann::ordered_json;
using replay::run_all;
using simulation::replay_order;
using simulation::replay_sums;
using simulation::tier_stack;
using simulation::tier_sums;

const std::map<std::string, replay_order> orders{{"fwd", replay_order::forward}, {"rev", replay_order::reverse}};

/// Options that mean something in one way of replaying only.
constexpr std::array simulated_only{"--capacity-sweep", "--policies",  "--order", "--tiers", "--lower-policy",
                                    "--ingest",         "--keep-copy", "--tails", "--copies"};
constexpr std::array real_only{"--gpu",  "--kill",        "--prefill-rate",  "--engines", "--socket", "--dram",
                               "--nvme", "--nvme-path",   "--policy",        "--set",     "--verify", "--access",
                               "--deal", "--concurrency", "--prefetch-wait", "--remote"};
constexpr std::array pool_only{"--copies", "--route"};
constexpr std::array tiers_only{"--lower-policy", "--ingest", "--keep-copy"};

struct replay_options {
  std::string path;
  std::string generated;
  std::size_t limit = 0;
  bool simulate = false;
  std::string capacities;
  std::string policies = "lru,s3fifo,arc,tblru";
  std::string order = "fwd";
  std::string tails = "cut";
  std::string format = "auto";
  std::uint64_t block_tokens = 0;  ///< 0: what the lines say
  std::string unit = "auto";
  bool allow_left_out = false;
  std::string tiers;
  std::string lower_policy = "lru";
  std::string ingest;
  std::string keep_copy = "true";
  replay::pool_options pool;
  bool as_json = false;
  replay::real_options real;
};

// ---------------------------------------------------------------------------------------------- simulating

/// The policies asked for, each a known one.
result<std::vector<std::string>> parse_policies(const replay_options& options) {
  std::vector<std::string> names;
  for (const std::string_view name : split(options.policies, ',')) names.emplace_back(name);
  for (const std::string& name : names) {
    if (auto known = simulation::check_simulated(name, orders.at(options.order)); !known) {
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

std::string bare_percent(double ratio) {
  return fmt::format("{:.2f}", ratio * 100);
}

replay::simulated_page page_of(const read_trace& read, std::uint64_t block_bytes, const replay_options& options) {
  return {.trace = options.path.empty() ? options.generated : options.path,
          .from = replay::provenance_of(options.generated),
          .block_bytes = block_bytes,
          .lines = read.lines,
          .left_out = read.left_out,
          .data = ordered_json::array()};
}

result<void> write_report(const replay::simulated_page& page, const replay_options& options) {
  const std::string& path = options.real.report;
  if (path.empty()) return {};
  if (auto ok = replay::write_page(path, replay::report_html(page)); !ok) return ok;
  if (!options.as_json) fmt::print("\nreport: {}\n", path);
  return {};
}

// ---------------------------------------------------------------------------------------------- one tier

using sweep_line = replay::simulated_cell;

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

ordered_json sweep_json(const sweep_line& swept, std::uint64_t left_out, const replay_options& options) {
  ordered_json line{{"policy", swept.policy}, {"order", options.order}, {"capacity", swept.capacity}};
  line.update(sums_json(swept.sums));
  line["left_out"] = left_out;
  return line;
}

void print_lines(const ordered_json& lines) {
  for (const auto& each : lines) {
    fmt::print("{}\n", each.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  }
}

void print_sweep(const std::vector<sweep_line>& lines, const std::vector<std::uint32_t>& capacities) {
  fmt::print("PREFIX-TOKEN HITS, % of {} tokens, by capacity in blocks\n{}", lines.front().sums.tokens,
             matrix_text(lines, capacities, [](const replay_sums& sums) { return bare_percent(sums.hit_ratio()); }));
  fmt::print("\nBLOCK HITS of {}\n{}", lines.front().sums.blocks,
             matrix_text(lines, capacities, [](const replay_sums& sums) { return std::to_string(sums.stream_hits); }));
}

/// Several capacities of LRU take one pass.
std::vector<sweep_line> sweep_all(const simulation::trace& trace, const std::vector<std::string>& policies,
                                  const std::vector<std::uint32_t>& capacities, replay_order order) {
  std::vector<sweep_line> lines;
  for (const std::string& policy : policies) {
    for (const std::uint32_t capacity : capacities) lines.push_back({policy, capacity, {}});
  }
  const auto at_once = [&](const std::string& policy) {
    return policy == "lru" && order == replay_order::forward && capacities.size() > 1;
  };
  const bool pass = std::ranges::any_of(policies, at_once);
  run_all(lines.size() + (pass ? 1 : 0), [&](std::size_t i) {
    if (i == lines.size()) {
      const simulation::lru_curve curve(trace);
      for (sweep_line& each : lines) {
        if (at_once(each.policy)) each.sums = curve.at(each.capacity);
      }
    } else if (!at_once(lines[i].policy)) {
      lines[i].sums = *simulation::simulate(trace, lines[i].policy, lines[i].capacity, order);
    }
  });
  return lines;
}

result<void> run_sweep(const read_trace& read, const replay_options& options) {
  const auto block = replay::parse_block(options.real.block_bytes);
  if (!block) return std::unexpected(block.error());
  const auto capacities = parse_capacities(options.capacities, *block);
  if (!capacities) return std::unexpected(capacities.error());
  const auto policies = parse_policies(options);
  if (!policies) return std::unexpected(policies.error());
  const auto lines = sweep_all(read.requests, *policies, *capacities, orders.at(options.order));
  auto page = page_of(read, *block, options);
  for (const sweep_line& each : lines) page.data.push_back(sweep_json(each, read.left_out, options));
  page.sweep = lines;
  if (options.as_json) {
    print_lines(page.data);
  } else {
    print_sweep(lines, *capacities);
  }
  return write_report(page, options);
}

// ---------------------------------------------------------------------------------------------- several tiers

/// A device's tier, below which DRAM is.
bool is_gpu(const named_tier& tier) {
  return tier.name == "gpu";
}

/// The tiers as the options describe them; upper_policy is left open.
result<tier_stack> stack_of(const std::vector<named_tier>& tiers, const replay_options& options) {
  const std::span below = std::span(tiers).subspan(1);
  const auto policies = parse_by_tier(options.lower_policy, below, "--lower-policy");
  if (!policies) return std::unexpected(policies.error());
  const auto ingests = parse_by_tier(options.ingest, below, "--ingest");
  if (!ingests) return std::unexpected(ingests.error());
  const auto copies = parse_by_tier(options.keep_copy, below, "--keep-copy");
  if (!copies) return std::unexpected(copies.error());
  const auto misplaced = std::ranges::find_if(below, is_gpu);
  if (misplaced != below.end()) {
    return fail(error_code::invalid_argument, "--tiers: gpu is a device's memory, above DRAM: it stands first");
  }
  tier_stack stack{.upper_capacity = tiers.front().capacity, .lower = {}, .upper_is_device = is_gpu(tiers.front())};
  for (std::size_t i = 0; i < below.size(); ++i) {
    const auto how = (*ingests)[i] ? enum_named<ingest>(*(*ingests)[i]) : standard_ingest(below[i].name, tiers[i].name);
    const std::string kept = (*copies)[i].value_or("true");
    if (!how) {
      return fail(error_code::invalid_argument, fmt::format("--ingest: `{}` is none of {}", *(*ingests)[i],
                                                            fmt::join(enumerator_names<ingest>(), ", ")));
    }
    if (kept != "true" && kept != "false") {
      return fail(error_code::invalid_argument, fmt::format("--keep-copy: `{}` is neither true nor false", kept));
    }
    stack.lower.push_back({.policy = (*policies)[i].value_or("lru"),
                           .capacity = below[i].capacity,
                           .ingest = *how,
                           .keep_copy = kept == "true"});
  }
  return stack;
}

ordered_json tiers_json(const std::string& policy, const tier_sums& sums, const std::vector<named_tier>& tiers,
                        const tier_stack& stack, const replay_options& options) {
  ordered_json capacities = ordered_json::object();
  std::uint64_t all = 0;
  for (const named_tier& each : tiers) {
    capacities[each.name] = each.capacity;
    all += each.capacity;
  }
  ordered_json line{{"policy", policy}, {"order", options.order}, {"capacity", all}, {"tiers", std::move(capacities)}};
  line.update(sums_json(sums.all));
  line.update({{"upper_hits", sums.upper_hits}, {"upper_tokens", sums.upper_tokens}});
  for (std::size_t i = 0; i < sums.lower.size(); ++i) {
    line["lower"][tiers[i + 1].name] = {
        {"policy", stack.lower[i].policy},       {"ingest", name_of(stack.lower[i].ingest)},
        {"keep_copy", stack.lower[i].keep_copy}, {"prefix_tokens", sums.lower[i].prefix_tokens},
        {"promoted", sums.lower[i].promoted},    {"written", sums.lower[i].written},
        {"evictions", sums.lower[i].evictions}};
  }
  return line;
}

std::string tiers_text(const std::vector<named_tier>& tiers, const tier_stack& stack) {
  std::string text = fmt::format("{} over ", tiers.front().capacity);
  for (std::size_t i = 0; i < stack.lower.size(); ++i) {
    text += fmt::format("{}{} blocks of {} (ingest {}, {})", i == 0 ? "" : " and ", stack.lower[i].capacity,
                        tiers[i + 1].name, name_of(stack.lower[i].ingest),
                        stack.lower[i].keep_copy ? "keeping the copy below" : "exclusive");
  }
  return text;
}

std::vector<std::string> names_of(const std::vector<named_tier>& tiers) {
  std::vector<std::string> names;
  std::ranges::transform(tiers, std::back_inserter(names), &named_tier::name);
  return names;
}

result<void> run_tiers(const read_trace& read, const replay_options& options) {
  const auto block = replay::parse_block(options.real.block_bytes);
  if (!block) return std::unexpected(block.error());
  const auto tiers = parse_tiers(options.tiers, *block);
  if (!tiers) return std::unexpected(tiers.error());
  const auto stack = stack_of(*tiers, options);
  if (!stack) return std::unexpected(stack.error());
  const auto policies = parse_policies(options);
  if (!policies) return std::unexpected(policies.error());
  std::vector<result<tier_sums>> all(policies->size());
  run_all(all.size(), [&](std::size_t i) {
    tier_stack how = *stack;
    how.upper_policy = (*policies)[i];
    all[i] = simulation::simulate(read.requests, how, orders.at(options.order));
  });
  auto page = page_of(read, *block, options);
  page.tier_names = names_of(*tiers);
  page.tiers_text = tiers_text(*tiers, *stack);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i]) return std::unexpected(all[i].error());
    page.data.push_back(tiers_json((*policies)[i], *all[i], *tiers, *stack, options));
    page.data.back()["left_out"] = read.left_out;
    page.tiers.push_back({(*policies)[i], *all[i]});
  }
  if (options.as_json) {
    print_lines(page.data);
  } else {
    fmt::print("PREFIX-TOKEN HITS of {}\n{}", page.tiers_text, replay::tiers_table(page));
  }
  return write_report(page, options);
}

// ---------------------------------------------------------------------------------------------- several nodes

result<void> run_pools(const read_trace& read, const replay_options& options) {
  const auto block = replay::parse_block(options.real.block_bytes);
  if (!block) return std::unexpected(block.error());
  const auto capacities = parse_capacities(options.capacities, *block);
  if (!capacities) return std::unexpected(capacities.error());
  const auto policies = parse_policies(options);
  if (!policies) return std::unexpected(policies.error());
  const auto sweep =
      replay::simulate_pools(read.requests, options.pool, *policies, *capacities, orders.at(options.order));
  if (!sweep) return std::unexpected(sweep.error());
  auto page = page_of(read, *block, options);
  for (const auto& each : sweep->cells) {
    auto line = sweep_json({each.pool.policy, each.pool.capacity, each.sums.all}, read.left_out, options);
    line.update(replay::pool_json(*sweep, each));
    page.data.push_back(std::move(line));
  }
  page.pools = replay::pool_rows(*sweep, read.requests.requests().size());
  if (options.as_json) {
    print_lines(page.data);
  } else {
    fmt::print("PREFIX-TOKEN HITS of {} tokens, requests dealt {}\n{}", read.requests.tokens(),
               options.pool.route == "prefix" ? "by prefix" : "in turn", replay::text_table(page.pools));
  }
  return write_report(page, options);
}

exit_code run_simulation(const read_trace& read, const replay_options& options) {
  if (auto ok = replay::check_writable(options.real.report); !ok) return failed_with(ok.error());
  const auto done = !options.pool.nodes.empty() ? run_pools(read, options)
                    : options.tiers.empty()     ? run_sweep(read, options)
                                                : run_tiers(read, options);
  if (done && !options.as_json && read.left_out > 0) {
    fmt::print("\n{} of the trace's {} lines were left out\n", read.left_out, read.lines);
  }
  return done ? exit_code::orderly : failed_with(done.error());
}

// ---------------------------------------------------------------------------------------------- the requests

/// A file's requests; what is strange about its lines is said.
result<read_trace> read_requests(const replay_options& options, bool full_blocks) {
  auto read = read_trace_file(options.path, {.format = options.format,
                                             .block_tokens = options.block_tokens,
                                             .unit = time_units().at(options.unit),
                                             .allow_left_out = options.allow_left_out,
                                             .full_blocks = full_blocks,
                                             .most = options.limit});
  if (!read) return read;
  for (const std::string& each : read->warnings) complain({error_code::malformed, each});
  return read;
}

result<read_trace> requests_of(const replay_options& options) {
  const bool full_blocks = options.tails == "cut";
  result<read_trace> all;
  if (!options.path.empty()) {
    all = read_requests(options, full_blocks);
  } else {
    auto made = simulation::generate(options.generated);
    if (!made) return std::unexpected(made.error());
    const std::size_t count = options.limit == 0 ? made->requests().size() : options.limit;
    all->requests = full_blocks ? made->full_blocks(count) : made->first(count);
  }
  if (all && options.simulate && !options.real.speed.empty()) {
    const auto speed = parse_speed(options.real.speed);
    if (!speed) return std::unexpected(speed.error());
    all->requests = all->requests.at_speed(*speed);
  }
  return all;
}

/// The first of `names` that was given; empty: none.
template <std::size_t N>
std::string_view given(const CLI::App& command, const std::array<const char*, N>& names) {
  const auto found = std::ranges::find_if(names, [&](const char* name) { return command.count(name) > 0; });
  return found == names.end() ? std::string_view() : *found;
}

/// Options of a real node that mean nothing together.
result<void> check_real(const CLI::App& command, const replay::real_options& options, bool alone) {
  const auto refuse = [](std::string why) { return fail(error_code::invalid_argument, std::move(why)); };
  const auto nvme = options.nvme.empty() ? std::uint64_t{1} : parse_bytes(options.nvme).value_or(1);
  if (nvme == 0 && !options.nvme_at.empty()) {
    return refuse("--nvme-path is for an NVMe tier: leave it out, or leave out --nvme 0");
  }
  if (nvme == 0 && alone && options.remote.empty() && options.gpu.empty() && command.count("--prefetch-wait") > 0) {
    return refuse(
        "--prefetch-wait is for tiers below DRAM: leave it out, leave out --nvme 0, or add --remote or --nodes");
  }
  if (options.engines == 1 && command.count("--deal") > 0) {
    return refuse("--deal is for several engines: leave it out, or leave out --engines 1");
  }
  return {};
}

/// Before anything is read: what cannot work together.
result<void> check(const CLI::App& command, const replay_options& options) {
  const auto refuse = [](std::string why) { return fail(error_code::invalid_argument, std::move(why)); };
  if (options.path.empty() == options.generated.empty()) {
    return refuse("replay needs either a trace or --generate KIND, as in --generate chat");
  }
  if (options.simulate && options.capacities.empty() == options.tiers.empty()) {
    return refuse("replay --simulate needs either --capacity-sweep or --tiers");
  }
  if (const auto name = given(command, simulated_only); !options.simulate && !name.empty()) {
    return refuse(fmt::format("{} simulates: add --simulate, or leave it out for a real node", name));
  }
  if (const auto name = given(command, real_only); options.simulate && !name.empty()) {
    return refuse(fmt::format("{} is for a real node: leave it out, or leave out --simulate, which takes {}", name,
                              name == "--policy" ? "--policies" : "--capacity-sweep or --tiers"));
  }
  if (options.simulate && !options.pool.nodes.empty() && options.capacities.empty()) {
    return refuse("--nodes is simulated for one tier: add --capacity-sweep, and leave out --tiers");
  }
  if (const auto name = given(command, pool_only); options.pool.nodes.empty() && !name.empty()) {
    return refuse(fmt::format("{} is for several nodes: add --nodes, as in --nodes 3", name));
  }
  if (const auto name = given(command, tiers_only); options.tiers.empty() && !name.empty()) {
    return refuse(fmt::format("{} is for several tiers: add --tiers, as in --tiers dram=1000,nvme=10000", name));
  }
  if (options.path.empty() && (options.unit != "auto" || options.allow_left_out)) {
    return refuse("--time-unit and --allow-left-out are for a trace's file, and --generate reads none");
  }
  return check_real(command, options.real, options.pool.nodes.empty());
}

exit_code run_replay(const CLI::App& command, const replay_options& options) {
  if (auto ok = check(command, options); !ok) return failed_with(ok.error());
  const auto read = requests_of(options);
  if (!read) return failed_with(read.error());
  if (options.simulate) return run_simulation(*read, options);
  const std::string& name = options.path.empty() ? options.generated : options.path;
  replay::real_options real = options.real;
  real.nodes = options.pool.nodes;
  real.route = options.pool.route;
  return replay::run_real(read->requests, {name, options.generated, read->lines, read->left_out}, real,
                          options.as_json);
}

/// The kinds that --generate knows, for the help.
std::string workloads_text() {
  std::string text;
  for (const auto& kind : simulation::workload_kinds()) {
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
  command->add_option("trace", options->path, "Recorded requests: a JSON object a line, or a .ctrace file");
  command->add_option("--format", options->format, "How they are written; auto: that of the first line that is of one")
      ->check(CLI::IsMember(format_names()))
      ->capture_default_str();
  command
      ->add_option("--block-tokens", options->block_tokens,
                   "Tokens of a block; without it what the lines say or their ids fit")
      ->check(CLI::Range(std::uint64_t{1}, formats::most_block_tokens));
  command->add_option("--generate", options->generated,
                      "Made-up requests in place of a trace: KIND or KIND:name=value,…; see below");
  command->add_option("--limit", options->limit, "Only the first so many requests");
  command
      ->add_option(
          "--time-unit", options->unit,
          "What times count: s, ms, us or ns; auto: what the format says, with mooncake ms, unless it is a time since "
          "1970")
      ->check(CLI::IsMember(time_units()))
      ->capture_default_str();
  command->add_flag("--allow-left-out", options->allow_left_out,
                    "Go on when more than a tenth of a trace's lines makes no sense");
  command->add_flag("--simulate", options->simulate, "Run the policies alone: no memory is moved, no node is needed");
  options->real.add_to(*command);
  command->add_option(
      "--capacity-sweep", options->capacities,
      "Capacities: a list, or FIRST:LAST:STEP as in 1k:256k:2x; blocks, k is 1,000, or bytes as in 2GiB");
  command
      ->add_option("--policies", options->policies,
                   fmt::format("Among {}; those with +partial keep tails, too", simulation::simulated_policies()))
      ->capture_default_str();
  command->add_option("--order", options->order, "How a request uses its blocks: fwd is head to tail, rev tail to head")
      ->check(CLI::IsMember({"fwd", "rev"}))
      ->capture_default_str();
  command
      ->add_option("--tails", options->tails,
                   "Blocks that are not full of tokens: cut, as engines do, or keep, as published figures do")
      ->check(CLI::IsMember({"cut", "keep"}))
      ->capture_default_str();
  command->add_option(
      "--tiers", options->tiers,
      "Two to four tiers, the upper one first, as in gpu=1000,dram=4k,nvme=10k,remote=100k or dram=2GiB,nvme=6GiB; the "
      "tier `gpu` reaches the others through the one below it");
  command
      ->add_option("--lower-policy", options->lower_policy,
                   "Policy of the lower tiers: one for all, or TIER=POLICY,…; as the next two")
      ->capture_default_str();
  command->add_option("--ingest", options->ingest,
                      "What goes down: none, all, hot (at its second access) or evicted; without it all for the tier "
                      "`remote` and the one below `gpu`, evicted for others");
  command->add_option("--keep-copy", options->keep_copy, "Whether a block that goes up stays below, too: true or false")
      ->capture_default_str();
  command->add_option("--nodes", options->pool.nodes,
                      "Nodes whose memory is one pool, each with the capacity said; simulated, a list as in 3,4,8");
  command
      ->add_option("--copies", options->pool.copies,
                   "What a node keeps of other nodes' blocks at most, in shares of its memory; 1 is no rule")
      ->capture_default_str();
  command
      ->add_option("--route", options->pool.route,
                   "The node that a request comes to: round-robin, or prefix, by a hash of its first two blocks")
      ->check(CLI::IsMember({"round-robin", "prefix"}))
      ->capture_default_str();
  command->add_flag("--json", options->as_json, "One object; simulated, a line for each policy and capacity");
  command->footer("tblru has an order of its own, whatever --order says.\n\nWhat --generate makes:" + workloads_text());
  replay::add_compare(*command);
  command->callback([command, options] {
    if (!command->get_subcommands().empty()) return;  // it has run
    end_with(run_replay(*command, *options));
  });
}

}  // namespace cenote
