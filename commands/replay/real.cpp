#include "commands/replay/real.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdio>
#include <map>

#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/replay/options.hpp"
#include "commands/replay/page.hpp"
#include "commands/replay/report.hpp"
#include "commands/replay/simulated_curves.hpp"
#include "commands/replay/simulated_pools.hpp"
#include "commands/replay/summary.hpp"
#include "config/node_config.hpp"
#include "core/instance_spec.hpp"
#include "core/units.hpp"
#include "simulation/simulation.hpp"
#include "transport/redis/server_url.hpp"

namespace cenote::replay {

namespace {

constexpr std::uint64_t least_block = 4096;

const std::map<std::string, verify_mode> verify_modes{
    {"none", verify_mode::none}, {"sample", verify_mode::sample}, {"all", verify_mode::all}};
const std::map<std::string, access_mode> access_modes{{"copy", access_mode::copy}, {"in-place", access_mode::in_place}};
const std::map<std::string, partition_mode> partition_modes{{"conversation", partition_mode::conversation},
                                                            {"round-robin", partition_mode::round_robin}};

result<std::uint64_t> parse_size(const std::string& text, std::string_view option) {
  const auto bytes = parse_bytes(text);
  if (!bytes) return std::unexpected(bytes.error().in(option));
  return *bytes;
}

/// What --set gives `key`, the last one; empty: nothing.
std::string_view set_to(const std::vector<std::string>& sets, std::string_view key) {
  std::string_view value;
  for (const std::string_view each : sets) {
    if (!each.starts_with(key) || each.substr(key.size(), 1) != "=") continue;
    value = each.substr(key.size() + 1);
    if (value.size() > 1 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
  }
  return value;
}

/// The rate that the node is given by --set; 0: none.
double prefill_rate_in(const std::vector<std::string>& sets) {
  const std::string_view value = set_to(sets, "prefetch.prefill_tokens_per_s");
  double rate = 0;
  std::from_chars(value.data(), value.data() + value.size(), rate);
  return rate;
}

/// What a node keeps of other nodes' blocks at most; nothing: it has no rule.
std::optional<double> copies_in(const std::vector<std::string>& sets) {
  const std::string_view value = set_to(sets, "cluster.copies");
  double share = config::default_config().cluster.copies;
  std::from_chars(value.data(), value.data() + value.size(), share);
  return share < 1 ? std::optional(share) : std::nullopt;
}

/// How a lower tier of the node's own works; what is no setting the node has refused.
simulation::lower_tier lower_tier_in(const std::vector<std::string>& sets, const std::string& section,
                                     ingest standard) {
  simulation::lower_tier tier;
  if (const auto policy = set_to(sets, section + ".policy"); !policy.empty()) tier.policy = policy;
  tier.ingest = enum_named<ingest>(set_to(sets, section + ".ingest")).value_or(standard);
  tier.keep_copy = set_to(sets, section + ".keep_copy") != "false";
  return tier;
}

/// What a node of our own does with each of its tiers.
node_tiers tiers_in(const std::vector<std::string>& sets) {
  node_tiers tiers{.gpu_policy = config::default_config().gpu.policy,
                   .gpu_ingest = config::default_config().gpu.ingest,
                   .nvme = lower_tier_in(sets, "nvme", ingest::evicted),
                   .remote = lower_tier_in(sets, "remote", ingest::all)};
  if (const auto policy = set_to(sets, "gpu.policy"); !policy.empty()) tiers.gpu_policy = policy;
  tiers.gpu_ingest = enum_named<ingest>(set_to(sets, "gpu.ingest")).value_or(tiers.gpu_ingest);
  return tiers;
}

result<std::uint64_t> parse_block_bytes(const std::string& text) {
  const auto block = parse_size(text, "--block-bytes");
  if (block && (*block < least_block || *block > max_block_bytes || *block % sizeof(std::uint64_t) != 0)) {
    return fail(error_code::invalid_argument,
                fmt::format("--block-bytes: {} is no size for a block; right are {} to {}, a multiple of 8", text,
                            format_bytes(least_block), format_bytes(max_block_bytes)));
  }
  return block;
}

/// "2@50%": the second node, when half of the requests are served.
result<planned_kill> parse_kill(std::string_view text, std::uint32_t nodes) {
  const auto at = text.find('@');
  const std::string_view number = text.substr(0, at);
  const std::string_view share = at == std::string_view::npos ? "" : text.substr(at + 1);
  std::uint32_t node = 0;
  double percent = -1;
  const auto [end, bad] = std::from_chars(number.data(), number.data() + number.size(), node);
  const auto [stop, wrong] = std::from_chars(share.data(), share.data() + share.size(), percent);
  const bool is_number = bad == std::errc() && end == number.data() + number.size() && node >= 1 && node <= nodes;
  const bool is_share = wrong == std::errc() && std::string_view(stop, share.data() + share.size()) == "%";
  if (!is_number || !is_share || !(percent >= 0 && percent <= 100)) {
    return fail(error_code::invalid_argument,
                fmt::format("--kill: `{}` names no node of {} and share of the requests; right is 1@50%", text, nodes));
  }
  return planned_kill{.node = node - 1, .at = percent / 100};
}

/// How many nodes of our own, which one a request comes to, and which one is killed.
result<void> parse_nodes_of(const real_options& options, run_options& out) {
  const auto refuse = [](std::string why) { return fail(error_code::invalid_argument, std::move(why)); };
  if (options.nodes.empty()) {
    if (!options.kill.empty()) return refuse("--kill is for several nodes: add --nodes, as in --nodes 3");
    return {};
  }
  const auto nodes = parse_nodes(options.nodes);
  if (!nodes) return std::unexpected(nodes.error());
  if (nodes->size() != 1 || nodes->front() > most_nodes) {
    return refuse(fmt::format("--nodes: real nodes are 1 to {}; several numbers are for --simulate", most_nodes));
  }
  out.nodes = nodes->front();
  if (out.nodes * options.engines > most_engines) {
    return refuse(fmt::format("--engines are those of each node: {} in all are over {}", out.nodes * options.engines,
                              most_engines));
  }
  if (!options.socket.empty()) return refuse("--nodes are the replay's own: leave it out, or leave out --socket");
  out.route = route_named(options.route);
  if (options.kill.empty()) return {};
  const auto kill = parse_kill(options.kill, out.nodes);
  if (!kill) return std::unexpected(kill.error());
  out.kill = *kill;
  return {};
}

/// The device that blocks lie on; refused is what it does not go with.
result<void> parse_gpu_of(const real_options& options, run_options& out) {
  if (options.gpu.empty()) return {};
  const auto refuse = [](std::string why) { return fail(error_code::invalid_argument, std::move(why)); };
  const auto tier = parse_gpu(options.gpu);
  if (!tier) return std::unexpected(tier.error().in("--gpu"));
  if (tier->bytes < out.block_bytes) {
    return refuse(fmt::format("--gpu: {} holds no block of {}", format_bytes(tier->bytes), options.block_bytes));
  }
  if (!options.nodes.empty()) return refuse("--gpu is for one node: leave it out, or leave out --nodes");
  if (out.access == access_mode::in_place) {
    return refuse(
        "--access in-place is for blocks in host memory, which a device's are not: leave it out, or leave out --gpu");
  }
  out.gpu = *tier;
  return {};
}

/// The tiers of a node of our own; refused for somebody else's.
result<void> parse_node(const real_options& options, run_options& out) {
  const bool any = !options.gpu.empty() || !options.dram.empty() || !options.nvme.empty() || !options.nvme_at.empty() ||
                   !options.remote.empty() || !options.policy.empty() || !options.sets.empty();
  if (any && !options.socket.empty()) {
    return fail(
        error_code::invalid_argument,
        "--gpu, --dram, --nvme, --nvme-path, --remote, --policy and --set are for a node of the replay's own; leave "
        "them out, or leave out --socket");
  }
  if (!options.dram.empty()) {
    const auto bytes = parse_size(options.dram, "--dram");
    if (!bytes) return std::unexpected(bytes.error());
    out.dram = *bytes;
  }
  if (!options.nvme.empty()) {
    const auto bytes = parse_size(options.nvme, "--nvme");
    if (!bytes) return std::unexpected(bytes.error());
    out.nvme = *bytes;
  }
  out.nvme_at = options.nvme_at;
  if (!options.remote.empty()) {
    if (auto url = redis::parse_server_url(options.remote); !url) return std::unexpected(url.error().in("--remote"));
    out.remote = options.remote;
  }
  out.policy = options.policy;
  out.sets = options.sets;
  return {};
}

/// The policies that the report compares: the node's own, where it can be simulated, and a few others.
std::vector<std::string> curve_policies(const replay_result& replay) {
  std::vector<std::string> names{"lru", "s3fifo", "tblru"};
  if (simulation::check_simulated(replay.policy, simulation::replay_order::forward))
    names.insert(names.begin(), replay.policy);
  return names;
}

/// What a run leaves to do: figures beside it, and telling. False: a file could not be written.
exit_code tell(replay_result& replay, const real_options& options, bool as_json) {
  replay.memcpy_rate = measure_memcpy(replay.settings.block_bytes);
  if (replay.nodes.size() > 1) {
    const auto replicas = set_to(options.sets, "remote.replicas");
    const bool has_one_home = replicas.empty() || replicas == "1";
    if (has_one_home) replay.simulated_pool = simulate_nodes(replay, copies_in(options.sets));
  } else if (replay.own_node) {
    replay.simulated = simulate_node(replay, tiers_in(options.sets));
  }
  result<void> reported;
  if (!options.report.empty()) {
    if (!replay.ran.requests().empty()) reported = simulate_curves(replay.ran, curve_policies(replay), replay);
    if (reported) reported = write_page(options.report, report_html(replay));
  }
  if (as_json) {
    fmt::print("{}\n", summary_json(replay).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", summary_text(replay));
    if (reported && !options.report.empty()) fmt::print("\nreport: {}\n", options.report);
  }
  std::fflush(stdout);
  if (!reported) return failed_with(reported.error());
  for (const auto& each : replay.failures) complain({error_code::internal, each});
  if (replay.interrupted) return exit_code::ended_at_once;
  return replay.failures.empty() ? exit_code::orderly : exit_code::failed;
}

}  // namespace

void real_options::add_to(CLI::App& command) {
  const auto one_of = [](const auto& modes) { return CLI::IsMember(modes); };
  command.add_option("--kill", kill, "1@50%: node 1 of --nodes is killed at half of the requests, and started again");
  command.add_option("--engines", engines, "Engine processes, of each node")
      ->check(CLI::Range(1U, most_engines))
      ->capture_default_str();
  command.add_option("--speed", speed,
                     "20x: twenty times as fast as recorded; max, which is the default: back to back. Simulated, "
                     "times are divided; max: time stands still");
  command.add_option("--block-bytes", block_bytes, "Size of a block")->capture_default_str();
  command.add_option("--socket", socket, "Use the node at this socket; without it the replay starts one");
  command.add_option("--gpu", gpu,
                     "Tier of device memory of the replay's own node, above DRAM, that the engines read and put on: "
                     "DEVICE:SIZE, as in GPU-UUID:8GiB or sim:1GiB, a simulated device");
  command.add_option("--dram", dram, "DRAM tier of the replay's own node; chosen from trace and machine");
  command.add_option("--nvme", nvme, "NVMe tier of the replay's own node, 0 for none; chosen from trace and disk");
  command.add_option("--nvme-path", nvme_at, "Where its directory is made; the directory for temporary files");
  command.add_option("--remote", remote,
                     "Remote tier of the replay's own node, as in redis://host:6379 or unix:///path; what is put there "
                     "stays until the server evicts it");
  command.add_option("--policy", policy, "dram.policy of the replay's own node");
  command.add_option("--set", sets, "key=value for the replay's own node; may be repeated");
  command.add_option("--verify", verify, "What is compared of blocks read: none, sample (eight cache lines) or all")
      ->check(one_of(verify_modes))
      ->capture_default_str();
  command.add_option("--access", access, "copy: blocks go through the engine's own memory; in-place: they do not")
      ->check(one_of(access_modes))
      ->capture_default_str();
  command.add_option("--deal", partition, "conversation: a request follows the one it continues; round-robin")
      ->check(one_of(partition_modes))
      ->capture_default_str();
  command.add_option("--concurrency", workers, "Requests that an engine serves at a time; 1 with --speed max, else 4")
      ->check(CLI::Range(1U, most_workers));
  command.add_option("--prefetch-wait", prefetch_wait, "How long a request waits for blocks from below DRAM")
      ->capture_default_str();
  command
      .add_option("--prefill-rate", prefill_rate,
                  "Tokens that an engine computes a second: requests get a compute time, and the replay's own node "
                  "prefill_tokens_per_s")
      ->check(CLI::Range(1.0, 1e9));
  command.add_option("--report", report, "Write a page with plots to this file");
}

result<std::uint64_t> parse_block(const std::string& text) {
  const auto block = parse_block_bytes(text);
  if (!block) return block;
  return (*block + block_alignment - 1) / block_alignment * block_alignment;
}

result<run_options> parse(const real_options& options) {
  run_options out;
  if (auto ok = parse_nodes_of(options, out); !ok) return std::unexpected(ok.error());
  out.engines = options.engines;
  out.workers = options.workers;
  out.socket = options.socket;
  out.verify = verify_modes.at(options.verify);
  out.access = access_modes.at(options.access);
  out.partition = partition_modes.at(options.partition);
  const auto speed = parse_speed(options.speed.empty() ? "max" : options.speed);
  if (!speed) return std::unexpected(speed.error());
  out.speed = *speed;
  const auto block = parse_block_bytes(options.block_bytes);
  if (!block) return std::unexpected(block.error());
  out.block_bytes = *block;
  const auto wait = parse_duration(options.prefetch_wait);
  if (!wait) return std::unexpected(wait.error().in("--prefetch-wait"));
  out.prefetch_wait = *wait;
  out.prefill_rate = options.prefill_rate > 0 ? options.prefill_rate : prefill_rate_in(options.sets);
  if (auto ok = parse_node(options, out); !ok) return std::unexpected(ok.error());
  if (auto ok = parse_gpu_of(options, out); !ok) return std::unexpected(ok.error());
  return out;
}

exit_code run_real(const simulation::trace& trace, const request_source& source, const real_options& options,
                   bool as_json) {
  auto parsed = parse(options);
  if (!parsed) return failed_with(parsed.error());
  if (auto ok = check_writable(options.report); !ok) return failed_with(ok.error());
  parsed->trace = source.name;
  watch_for_interruption();
  auto ran = run(trace, *parsed);
  if (!ran && interrupted()) return exit_code::ended_at_once;
  if (!ran) return failed_with(ran.error());
  ran->from = provenance_of(source.generated);
  if (ran->has_gpu()) ran->gpu_policy = tiers_in(options.sets).gpu_policy;
  ran->lines = source.lines;
  ran->left_out = source.left_out;
  return tell(*ran, options, as_json);
}

}  // namespace cenote::replay
