#include "commands/replay/watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <sstream>
#include <utility>

#include "cluster/counters.hpp"
#include "commands/common.hpp"
#include "commands/node_status.hpp"
#include "tiers/remote/counters.hpp"
#include "transport/local/socket.hpp"

namespace cenote::replay {

namespace {

using namespace std::chrono_literals;

constexpr auto first_limit = 10s;
constexpr auto look_limit = 500ms;

/// What of a movement simply adds up.
constexpr std::array counts{&node_movement::written_down,   &node_movement::read_up,
                            &node_movement::evicted,        &node_movement::dropped,
                            &node_movement::lower_evicted,  &node_movement::remote_put,
                            &node_movement::remote_got,     &node_movement::remote_unreachable,
                            &node_movement::remote_not_put, &node_movement::fetched,
                            &node_movement::lent,           &node_movement::hosted,
                            &node_movement::offered,        &node_movement::checksum_errors,
                            &node_movement::cannot_win,     &node_movement::cut,
                            &node_movement::compared,       &node_movement::probes,
                            &node_movement::gpu_written,    &node_movement::gpu_read,
                            &node_movement::gpu_evicted,    &node_movement::gpu_dropped};
constexpr std::array times{&node_movement::waited_s, &node_movement::recompute_s, &node_movement::saved_s,
                           &node_movement::lost_s};

node_movement counters_of(const nlohmann::json& status) {
  const auto dram = figures_in<blocks::store_counters>(status);
  const auto nvme = figures_in<nvme::store_counters>(status);
  const auto prefetch = figures_in<prefetch::status>(status);
  const auto far = figures_in<remote::store_counters>(status);
  node_movement now;
  for (const auto& device : member(member(status, "gpu"), "devices")) {
    now.gpu_written += count_of(member(device, "counters"), "written_bytes");
    now.gpu_read += count_of(member(device, "counters"), "read_bytes");
    now.gpu_evicted += count_of(device, "evicted");
    now.gpu_dropped += count_of(device, "demotions_dropped");
  }
  now.written_down = nvme.written_bytes;
  now.read_up = nvme.read_bytes;
  now.evicted = dram.evicted;
  now.dropped = dram.demotions_dropped;
  now.lower_evicted = nvme.evicted;
  now.remote_put = far.put_bytes;
  now.remote_got = far.got_bytes;
  now.remote_unreachable = far.unreachable;
  now.remote_not_put = far.full + far.dropped;
  const auto peers = figures_in<cluster::pool_counters>(status);
  now.fetched = peers.fetched;
  now.lent = peers.lent;
  now.hosted = peers.hosted;
  now.offered = peers.offered;
  now.checksum_errors = dram.checksum_errors + nvme.checksum_errors + far.wrong;
  now.cannot_win = ended_by(status, prefetch::reason::cannot_win);
  now.cut = ended_by(status, prefetch::reason::cut);
  now.compared = prefetch.compared;
  now.probes = prefetch.probes;
  now.waited_s = prefetch.waited_s;
  now.recompute_s = prefetch.recompute_s;
  now.saved_s = prefetch.saved_s;
  now.lost_s = prefetch.lost_s;
  if (!figure_in<&blocks::store_counters::put_waits>(status).is_null()) now.put_waits = dram.put_waits;
  return now;
}

/// The numbers in its status are of this PID namespace: its keeper, which listens, has the same one here.
bool has_numbers_of_here(const std::string& socket, const nlohmann::json& status) {
  const auto link = local::connect_to(socket, std::chrono::steady_clock::now() + first_limit);
  const auto keeper = link ? local::credentials_of(link->get()) : std::unexpected(link.error());
  return keeper && std::cmp_equal(keeper->pid, count_of(member(status, "node"), "pid"));
}

std::optional<double> node_cpu(const nlohmann::json& status) {
  const auto& node = member(status, "node");
  const auto keeper = process_cpu_seconds(count_of(node, "pid"));
  const auto worker = process_cpu_seconds(count_of(node, "worker_pid"));
  if (!keeper || !worker) return std::nullopt;
  return *keeper + *worker;
}

}  // namespace

node_movement& node_movement::operator+=(const node_movement& other) {
  for (const auto each : counts) this->*each += other.*each;
  for (const auto each : times) this->*each += other.*each;
  if (other.put_waits) put_waits = put_waits.value_or(0) + *other.put_waits;
  return *this;
}

std::optional<double> process_cpu_seconds(std::uint64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end_of_name + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double ticks = 0;
  for (int i = 0; i < 4; ++i) {  // utime, stime, and those of children
    double more = 0;
    if (!(fields >> more)) return std::nullopt;
    ticks += more;
  }
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

result<node_watch> node_watch::begin(std::string socket) {
  node_watch watch(std::move(socket));
  auto status = ask(watch.socket_, {{"command", "status"}}, first_limit);
  if (!status) return std::unexpected(status.error());
  watch.status_ = std::move(*status);
  watch.first_restarts_ = figures_in<node_figures>(watch.status_).restarts;
  watch.worker_ = count_of(member(watch.status_, "node"), "worker_pid");
  watch.before_ = counters_of(watch.status_);
  if (has_numbers_of_here(watch.socket_, watch.status_)) watch.cpu_before_ = node_cpu(watch.status_);
  return watch;
}

bool node_watch::look() {
  auto status = ask(socket_, {{"command", "status"}}, look_limit);
  gone_ = !status && status.error().code() == error_code::not_running;
  if (!status) return false;
  status_ = std::move(*status);
  count();
  return true;
}

void node_watch::count() {
  const std::uint64_t worker = count_of(member(status_, "node"), "worker_pid");
  const node_movement now = counters_of(status_);
  if (worker != std::exchange(worker_, worker)) before_ = {};
  const auto add = [](auto& to, auto from, auto till) { to += till < from ? 0 : till - from; };
  for (const auto each : counts) add(moved_.*each, before_.*each, now.*each);
  for (const auto each : times) add(moved_.*each, before_.*each, now.*each);
  if (now.put_waits) {
    std::uint64_t waits = moved_.put_waits.value_or(0);
    add(waits, before_.put_waits.value_or(0), *now.put_waits);
    moved_.put_waits = waits;
  }
  before_ = now;
}

disk_estimate node_watch::disk() const {
  const auto prefetch = figures_in<prefetch::status>(status_);
  return {.bytes_per_s = prefetch.bytes_per_s, .latency_s = prefetch.latency_s, .age_s = prefetch.measured_age_s};
}

std::uint64_t node_watch::restarts() const noexcept {
  const std::uint64_t now = figures_in<node_figures>(status_).restarts;
  return now - std::min(now, first_restarts_);  // a node that was started again counts from 0
}

std::optional<double> node_watch::cpu_seconds() const {
  const auto now = node_cpu(status_);
  if (!now || !cpu_before_) return std::nullopt;
  return *now - *cpu_before_;
}

}  // namespace cenote::replay
