// What nodes send each other, between this process and another one: blocks against a blocking socket, requests against
// the bare network and a bare socket, and how soon a death is known.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "commands/bench/peer_ends.hpp"
#include "commands/bench/support.hpp"
#include "config/logging.hpp"
#include "core/machine.hpp"
#include "transport/ucx/environment.hpp"

namespace cenote::bench::peer_bench {

namespace {

using namespace std::chrono_literals;

constexpr unsigned usual_rounds = 9;
constexpr std::uint64_t bytes_a_round = 256 * MiB;
constexpr std::size_t pings_a_round = 2000;

// -------------------------------------------------------------------------------------- ucx_perftest

constexpr std::array<std::uint64_t, 4> block_sizes{64 * KiB, 512 * KiB, 2 * MiB, 8 * MiB};
using speeds = std::map<std::uint64_t, double>;  ///< GiB/s by the size of a block

/// The sixth number of the last line that it prints: MiB a second over the whole run.
std::optional<double> speed_in(const std::string& output) {
  std::ifstream file(output);
  std::string line;
  std::string last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  std::istringstream words(last);
  double number = 0;
  for (int i = 0; i < 6; ++i) {
    if (!(words >> number)) return std::nullopt;
  }
  return number / 1024;
}

/// Active messages by UCX's own program, whose two processes spin. To be called while this process has one thread.
result<speeds> measure_perftest(bool is_quick) {
  speeds found;
  const auto program = find_program("ucx_perftest");
  if (!program) return found;
  auto directory = scratch_directory::make(std::filesystem::temp_directory_path().native());
  if (!directory) return std::unexpected(directory.error());
  const auto variables = ucx::environment_of({"127.0.0.1", 0}, {}, {});
  if (!variables) return std::unexpected(variables.error());
  std::string settings = "export";
  for (const auto& [name, value] : *variables) settings += fmt::format(" {}='{}'", name, value);
  for (const std::uint64_t size : block_sizes) {
    const std::string output = *directory / "perftest";
    const std::uint64_t count = (is_quick ? arena_bytes : 16 * arena_bytes) / size;
    child_process::setup how;
    how.program = "/bin/sh";
    how.command = {
        "sh", "-c",
        fmt::format("{}; {} -p 17655 >/dev/null 2>&1 & sleep 0.5; timeout 30 {} 127.0.0.1 -p 17655 -t ucp_am_bw "
                    "-s {} -n {} -w 10 -f >{} 2>/dev/null; kill $! 2>/dev/null; true",
                    settings, *program, *program, size, count, output)};
    if (auto ended = run_program(how); !ended) return std::unexpected(ended.error());
    if (const auto speed = speed_in(output)) found[size] = *speed;
  }
  return found;
}

// --------------------------------------------------------------------------------------- the figures

struct bench_parts {
  const peer_path& way;
  other_process& other;
  peer_side& network;
  int socket;
  std::byte* arena;
};

result<void> fetch_by_socket(const bench_parts& with, std::uint64_t size, std::uint64_t count) {
  const auto asked = request_frame({size, count});
  bool is_done = send_all(with.socket, asked.data(), asked.size());
  for (std::uint64_t i = 0; i < count && is_done; ++i) is_done = receive_all(with.socket, with.arena + i * size, size);
  return is_done ? result<void>() : fail(error_code::closed, "the other process ended");
}

/// Time and processor time of one way to fetch blocks.
struct way {
  samples time, cpu;
};

result<void> measure(way& into, const bench_parts& with, std::uint64_t size,
                     const std::function<result<void>(std::uint64_t)>& fetch) {
  const std::uint64_t count = arena_bytes / size;
  const double cpu = with.other.cpu_seconds();
  const stopwatch time;
  for (std::uint64_t moved = 0; moved < bytes_a_round; moved += arena_bytes) {
    if (auto done = fetch(count); !done) return done;
  }
  into.time.add(time.seconds());
  into.cpu.add(with.other.cpu_seconds() - cpu);
  return {};
}

result<void> measure_blocks(const bench_parts& with, std::uint64_t size, unsigned rounds, const speeds& perftest,
                            report& out) {
  way raw, ours, hashed;
  for (unsigned round = 0; round < rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    auto done = measure(raw, with, size, [&](std::uint64_t count) { return fetch_by_socket(with, size, count); });
    if (done) done = measure(ours, with, size, [&](auto count) { return with.network.fetch({size, count}, false); });
    if (done) done = measure(hashed, with, size, [&](auto count) { return with.network.fetch({size, count}, true); });
    if (!done) return done;
  }
  const std::string name = approximate_bytes(size);
  const double gib = static_cast<double>(bytes_a_round) / static_cast<double>(GiB);
  const bool is_promised = with.way.offloads;
  const bound speed_bound{is_promised ? bound::kind::ratio_at_least : bound::kind::none, size < 512 * KiB ? 0.90 : 1.0};
  const bound cost_bound{with.way.is_veth ? bound::kind::none : bound::kind::ratio_at_most, 1.2};
  out.add(rate_figure("peer", "blocks of " + name, ours.time, raw.time, gib, "GiB/s", speed_bound));
  out.add(time_figure("peer", "processor time, " + name, ours.cpu, raw.cpu, 1 / gib, "s/GiB", cost_bound));
  out.add(rate_figure("peer", "with the checksum, " + name, hashed.time, raw.time, gib, "GiB/s"));
  if (const auto beside = perftest.find(size); beside != perftest.end()) {
    const double speed = gib / ours.time.median();
    out.add({.bench = "peer",
             .name = "beside ucx_perftest, " + name,
             .value = speed,
             .unit = "GiB/s",
             .limit = beside->second,
             .low = speed,
             .high = speed});
  }
  return {};
}

result<void> ping_socket(int socket) {
  std::array<std::byte, ping_bytes> frame{};
  const bool is_back = send_all(socket, frame.data(), frame.size()) && receive_all(socket, frame.data(), frame.size());
  return is_back ? result<void>() : fail(error_code::closed, "the other process ended");
}

/// An actor that sends a ping as soon as the answer to the one before is there, as an actor of a node does.
caf::behavior ping_actor(caf::event_based_actor* self, const cluster_actor& cluster) {
  auto payload = std::make_shared<const std::vector<std::byte>>(ping_bytes);
  return {[self, cluster, payload](ping_atom, std::uint64_t count) -> caf::result<std::uint64_t> {
    auto promise = self->make_response_promise<std::uint64_t>();
    auto left = std::make_shared<std::uint64_t>(count);
    auto next = std::make_shared<std::function<void()>>();
    *next = [self, cluster, payload, promise, left, weak = std::weak_ptr(next)]() mutable {
      self->request(cluster, patience, ping_atom_v, std::string("there"), payload)
          .then(
              [promise, left, again = weak.lock()](const payload_ptr&) mutable {
                if (--*left == 0) {
                  promise.deliver(std::uint64_t{0});
                } else {
                  (*again)();
                }
              },
              [promise](const caf::error& why) mutable { promise.deliver(why); });
    };
    (*next)();
    return promise;
  }};
}

result<void> measure_requests(const bench_parts& with, peer_member& cluster, unsigned rounds, report& out) {
  samples actors, bare, raw;
  const auto pinger = cluster.system.spawn(ping_actor, cluster.host->actor());
  const caf::scoped_actor self(cluster.system);
  for (unsigned round = 0; round < rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    const stopwatch by_socket;
    for (std::size_t i = 0; i < pings_a_round; ++i) {
      if (auto done = ping_socket(with.socket); !done) return done;
    }
    raw.add(by_socket.seconds() / pings_a_round);
    const stopwatch by_network;
    if (auto done = with.network.ping(pings_a_round); !done) return done;
    bare.add(by_network.seconds() / pings_a_round);
    const stopwatch by_actors;
    bool is_done = false;
    self->request(pinger, patience, ping_atom_v, std::uint64_t{pings_a_round})
        .receive([&](std::uint64_t) { is_done = true; }, [](const caf::error&) {});
    if (!is_done) return fail(error_code::deadline_exceeded, "the other node's actor does not answer");
    actors.add(by_actors.seconds() / pings_a_round);
  }
  caf::anon_send_exit(pinger, caf::exit_reason::user_shutdown);
  out.add(time_figure("peer", "request between actors, 64 bytes", actors, bare, 1e6, "us",
                      {bound::kind::ratio_at_most, 3.0}));
  out.add(time_figure("peer", "the same by the network alone", bare, raw, 1e6, "us"));
  return {};
}

result<void> wait_for(peer_member& cluster, std::string_view state, samples* took) {
  const stopwatch time;
  while (cluster.state_of_other() != state) {
    if (time.seconds() > 30) return fail(error_code::deadline_exceeded, "the other node does not become as expected");
    std::this_thread::sleep_for(1ms);
  }
  if (took != nullptr) took->add(time.seconds());
  return {};
}

/// How soon a standstill and a death are known; the last thing that is done with the other process.
result<void> measure_deaths(const bench_parts& with, peer_member& cluster, unsigned rounds, report& out) {
  samples silent, dead;
  for (unsigned round = 0; round < std::min(rounds, 5U); ++round) {
    with.other.send_signal(SIGSTOP);
    if (auto seen = wait_for(cluster, "suspect", &silent); !seen) return seen;
    with.other.send_signal(SIGCONT);
    if (auto seen = wait_for(cluster, "live", nullptr); !seen) return seen;
  }
  const stopwatch time;
  with.other.kill(SIGKILL);
  while (cluster.state_of_other() == "live") std::this_thread::sleep_for(1ms);
  dead.add(time.seconds());
  samples allowed;
  allowed.add(std::chrono::duration<double>(peer_member::suspect_after).count());
  out.add(time_figure("peer", "until a node that stands still is not used", silent, allowed, 1e3, "ms",
                      {bound::kind::ratio_at_most, 1.25}));
  out.add(time_figure("peer", "until a killed node is not used", dead, allowed, 1e3, "ms",
                      {bound::kind::ratio_at_most, 1}));
  return {};
}

}  // namespace

result<void> run(const options& options, report& out) {
  (void)set_levels("error");  // deaths are meant here
  auto directory = scratch_directory::make(std::filesystem::temp_directory_path().native());
  if (!directory) return std::unexpected(directory.error());
  const peer_path way = options.veth ? peer_path::veth(*directory / "secret", !options.no_offload) : peer_path();
  if (options.veth) {
    std::ofstream(way.secret_file) << "known to the two processes of this bench\n";
    std::filesystem::permissions(way.secret_file, std::filesystem::perms::owner_read);
  }
  const auto perftest = options.veth ? result<speeds>() : measure_perftest(options.quick);
  if (!perftest) return std::unexpected(perftest.error());
  if (perftest->empty() && !options.veth)
    out.say_below("ucx_perftest: not measured, it is not installed (package ucx-utils)\n");
  auto other = other_process::start(way);
  if (!other) return std::unexpected(other.error());
  memory_pieces arena(1, arena_bytes);
  auto network = peer_side::start(way.here, arena.piece(0));
  if (!network) return std::unexpected(network.error());
  peer_member cluster;  // first: all connections of the two processes show the secret that it brings
  if (auto joined = cluster.join("here", way.here, way.secret_file, {other->at.cluster.text()}); !joined) return joined;
  if (auto joined = (*network)->join(other->at.where, other->at.blocks_at); !joined) return joined;
  auto socket = connect_to(way.there, other->at.socket);
  if (!socket) return std::unexpected(socket.error());
  if (auto seen = wait_for(cluster, "live", nullptr); !seen) return seen;

  out.say_below(
      fmt::format("limits: a blocking socket on the same path, and for requests the network without actors; "
                  "{}, congestion control {}\n",
                  way.describe(), first_line("/proc/sys/net/ipv4/tcp_congestion_control").value_or("unknown")));
  const bench_parts with{way, *other, **network, socket->get(), arena.piece(0)};
  const unsigned rounds = options.rounds != 0 ? options.rounds : options.quick ? 1 : usual_rounds;
  for (const std::uint64_t size : block_sizes) {
    if (auto done = measure_blocks(with, size, rounds, *perftest, out); !done) return done;
  }
  if (auto done = measure_requests(with, cluster, rounds, out); !done) return done;
  return measure_deaths(with, cluster, rounds, out);
}

}  // namespace cenote::bench::peer_bench
