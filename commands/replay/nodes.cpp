#include "commands/replay/nodes.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <random>
#include <utility>

#include "cluster/counters.hpp"
#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/node_status.hpp"
#include "commands/replay/sizes.hpp"
#include "core/instance_spec.hpp"
#include "core/unique_fd.hpp"
#include "core/units.hpp"
#include "tiers/remote/counters.hpp"

namespace cenote::replay {

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr auto open_limit = 30s;
constexpr auto server_limit = 5s;        // until the remote tier answers
constexpr auto cluster_limit = 30s;      // until all nodes can ask each other
constexpr double node_gone_limit = 5;    // seconds that a socket may refuse before the replay gives up
constexpr double stays_dead = 1;         // seconds that a killed node is away: the others notice
constexpr double comes_back_limit = 30;  // seconds until it must answer again

struct shortage {
  std::string what;
  bool is_final = false;  ///< it will not come
};
/// What a status lacks for a replay to begin; nothing: it may.
using lack = std::function<std::optional<shortage>(const nlohmann::json& status)>;

std::optional<shortage> opening_path(const nlohmann::json& status) {
  for (const auto& path : member(member(status, "nvme"), "paths")) {
    if (text_of(path, "state") == "opening")
      return shortage{"the NVMe path does not open: " + text_of(path, "last_error")};
  }
  return std::nullopt;
}

std::optional<shortage> opening_device(const nlohmann::json& status) {
  for (const auto& device : member(member(status, "gpu"), "devices")) {
    const auto state = text_of(device, "state");
    if (state == "ready") continue;
    return shortage{
        fmt::format("the tier of {} is not ready: {} {}", text_of(device, "device"), state, text_of(device, "why")),
        state == "away"};
  }
  return std::nullopt;
}

std::optional<shortage> silent_server(const nlohmann::json& status) {
  for (const auto& backend : member(member(status, "remote"), "backends")) {
    if (member(backend, "serves") == true) continue;
    return shortage{fmt::format("{} does not answer: {}", text_of(backend, "name"), text_of(backend, "last_error"))};
  }
  return std::nullopt;
}

/// A node that cannot ask `others` for blocks yet.
std::optional<shortage> lonely(const nlohmann::json& status, std::uint64_t others) {
  const auto askable = figures_in<cluster::cluster_gauges>(status).askable;
  if (askable >= others) return std::nullopt;
  return shortage{fmt::format("a node of the replay's own can ask {} of {} others for blocks", askable, others)};
}

result<void> wait_for(const std::string& socket, const lack& missing, steady_clock::duration limit) {
  const auto until = steady_clock::now() + limit;
  while (true) {
    const auto status = ask(socket, {{"command", "status"}}, 5s);
    if (!status) return std::unexpected(status.error());
    const auto what = missing(*status);
    if (!what) return {};
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    if (what->is_final) return fail(error_code::closed, what->what);
    if (steady_clock::now() > until) return fail(error_code::deadline_exceeded, what->what);
    ::poll(nullptr, 0, 10);
  }
}

bool is_free(std::uint16_t port) {
  const unique_fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return probe && ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
}

/// Ports of 127.0.0.1 that nobody has now, and that the kernel gives to nobody who asks for any.
result<std::vector<std::uint16_t>> free_ports(std::uint32_t count) {
  constexpr unsigned least = 10'000;
  constexpr unsigned most_looks = 10'000;
  unsigned first_given = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first_given;
  std::mt19937 random{std::random_device{}()};
  std::uniform_int_distribution<unsigned> any(least, std::max(first_given, 2 * least) - 1);
  std::vector<std::uint16_t> ports;
  for (unsigned looks = 0; looks < most_looks && ports.size() < count; ++looks) {
    const auto port = static_cast<std::uint16_t>(any(random));
    if (std::ranges::find(ports, port) == ports.end() && is_free(port)) ports.push_back(port);
  }
  if (ports.size() < count) return fail(error_code::system, "no free ports on 127.0.0.1 for the replay's nodes");
  return ports;
}

std::vector<std::string> cluster_sets(std::string_view name, std::uint32_t number,
                                      const std::vector<std::uint16_t>& ports) {
  const std::size_t seeds = std::min<std::size_t>(ports.size(), 2);
  std::string all;
  for (std::size_t i = 0; i < seeds; ++i) all += fmt::format("{}\"127.0.0.1:{}\"", i == 0 ? "" : ",", ports[i]);
  return {fmt::format("cluster.name={}", name), fmt::format("cluster.listen=127.0.0.1:{}", ports[number]),
          fmt::format("cluster.seeds=[{}]", all), "metrics.listen=off"};
}

}  // namespace

result<replay_nodes> replay_nodes::open(const simulation::trace& trace, const run_options& options) {
  replay_nodes opened;
  if (options.socket.empty()) {
    if (auto ok = opened.start(trace, options); !ok) return std::unexpected(ok.error());
    if (auto ok = opened.wait_until_open(); !ok) return std::unexpected(ok.error());
  } else {
    opened.nodes_.push_back({.socket = options.socket});
  }
  if (auto ok = opened.begin_watching(); !ok) return std::unexpected(ok.error());
  return opened;
}

result<void> replay_nodes::start(const simulation::trace& trace, const run_options& options) {
  const std::uint64_t stride = (options.block_bytes + block_alignment - 1) / block_alignment * block_alignment;
  auto sizes = choose_sizes(trace.distinct() * stride, stride, options.dram, options.nvme, room_of(options.nvme_at));
  auto sets = options.sets;
  if (!options.policy.empty()) sets.push_back("dram.policy=" + options.policy);
  if (options.gpu) {
    sets.push_back(fmt::format("gpu.devices=[\"{}\"]", options.gpu->device));
    sets.push_back("gpu.capacity=" + format_bytes(options.gpu->bytes));
  }
  if (options.prefill_rate > 0) {
    sets.insert(sets.begin(), fmt::format("prefetch.prefill_tokens_per_s={:.0f}", options.prefill_rate));
  }
  const bool is_pool = options.nodes > 1;
  if (is_pool && !options.nvme) sizes.nvme = 0;
  if (is_pool && options.dram == 0) sizes.dram = std::max(sizes.dram / options.nodes / MiB, std::uint64_t{16}) * MiB;
  auto ports = is_pool ? free_ports(options.nodes) : result<std::vector<std::uint16_t>>();
  if (!ports) return std::unexpected(ports.error());
  for (std::uint32_t i = 0; i < options.nodes; ++i) {
    node made{.name = fmt::format("node{}", i + 1)};
    private_node::setup setup{.purpose = "replay",
                              .dram = sizes.dram,
                              .nvme = sizes.nvme,
                              .nvme_at = options.nvme_at,
                              .only_launch = true,
                              .own_log = true};
    if (is_pool) {
      setup.remote.emplace_back("peers");
      setup.sets = cluster_sets(made.name, i, *ports);
    }
    if (!options.remote.empty()) setup.remote.push_back(options.remote);
    setup.sets.insert(setup.sets.end(), sets.begin(), sets.end());
    auto started = private_node::start(setup);
    if (!started) return std::unexpected(started.error());
    made.own = std::move(*started);
    made.socket = made.own->socket();
    nodes_.push_back(std::move(made));
  }
  return {};
}

/// What is still opening takes no blocks: a replay must not begin without its lower tiers, nor its other nodes.
result<void> replay_nodes::wait_until_open() const {
  for (const node& each : nodes_) {
    if (auto ok = each.own->wait_until_it_answers(); !ok) return ok;
  }
  const auto alone = [&](const nlohmann::json& status) { return lonely(status, nodes_.size() - 1); };
  for (const node& each : nodes_) {
    if (auto ok = wait_for(each.socket, opening_path, open_limit); !ok) return ok;
    if (auto ok = wait_for(each.socket, opening_device, open_limit); !ok) return ok;
    if (auto ok = wait_for(each.socket, alone, cluster_limit); !ok) return ok;
    if (auto ok = wait_for(each.socket, silent_server, server_limit); !ok) return ok;
  }
  return {};
}

result<void> replay_nodes::begin_watching() {
  for (node& each : nodes_) {
    auto watch = node_watch::begin(each.socket);
    if (!watch) return std::unexpected(watch.error());
    each.watch.emplace(std::move(*watch));
  }
  return {};
}

bool replay_nodes::look() {
  bool all = true;
  for (std::uint32_t i = 0; i < size(); ++i) all &= look_at(i) || is_down(i);
  return all;
}

bool replay_nodes::look_at(std::uint32_t number) {
  node& at = nodes_[number];
  if (at.killed_at && !at.is_started_again) return false;
  if (!at.watch->look()) return false;
  at.killed_at.reset();
  return true;
}

std::optional<std::string> replay_nodes::loss(double now) {
  for (node& each : nodes_) {
    if (each.killed_at && (!each.is_started_again || now - *each.killed_at < comes_back_limit)) continue;
    if (each.own) {
      const auto end = each.own->ended();
      if (end) return fmt::format("the node ended with {}; its log: {}", end->describe(), each.own->log_tail());
      if (each.killed_at) return "the killed node does not come back; its log: " + each.own->log_tail();
    } else if (!each.watch->gone()) {
      each.gone_since.reset();
    } else if (now - each.gone_since.emplace(each.gone_since.value_or(now)) > node_gone_limit) {
      return "no node answers any more at " + each.socket;
    }
  }
  return std::nullopt;
}

void replay_nodes::kill(std::uint32_t number, double now) {
  node& killed = nodes_[number];
  killed.killed_at = now;
  killed.is_started_again = false;
  killed.was_killed = true;
  killed.own->kill(static_cast<pid_t>(count_of(member(killed.watch->status(), "node"), "worker_pid")));
}

result<void> replay_nodes::revive(double now) {
  for (node& each : nodes_) {
    if (!each.killed_at || each.is_started_again || now - *each.killed_at < stays_dead) continue;
    if (auto ok = each.own->start_again(); !ok) return ok;
    each.is_started_again = true;
  }
  return {};
}

node_movement replay_nodes::moved() const {
  node_movement all;
  for (const node& each : nodes_) all += each.watch->moved();
  return all;
}

std::uint64_t replay_nodes::restarts() const {
  std::uint64_t all = 0;
  for (const node& each : nodes_) all += each.watch->restarts();
  return all;
}

std::optional<double> replay_nodes::cpu_seconds() const {
  double all = 0;
  for (const node& each : nodes_) {
    const auto seconds = each.was_killed ? std::nullopt : each.watch->cpu_seconds();
    if (!seconds) return std::nullopt;
    all += *seconds;
  }
  return all;
}

}  // namespace cenote::replay
