#include "commands/replay/watch.hpp"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <utility>

#include "commands/common.hpp"
#include "commands/node_status.hpp"
#include "tiers/remote/counters.hpp"

namespace cenote::replay {

namespace {

using namespace std::chrono_literals;

constexpr auto first_limit = 10s;
constexpr auto look_limit = 500ms;

node_movement counters_of(const nlohmann::json& status) {
  const auto dram = figures_in<blocks::store_counters>(status);
  const auto nvme = figures_in<nvme::store_counters>(status);
  const auto prefetch = figures_in<prefetch::status>(status);
  const auto far = figures_in<remote::store_counters>(status);
  node_movement now;
  now.written_down = nvme.written_bytes;
  now.read_up = nvme.read_bytes;
  now.evicted = dram.evicted;
  now.dropped = dram.demotions_dropped;
  now.lower_evicted = nvme.evicted;
  now.remote_put = far.put_bytes;
  now.remote_got = far.got_bytes;
  now.remote_unreachable = far.unreachable;
  now.remote_not_put = far.full + far.dropped;
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

std::optional<double> node_cpu(const nlohmann::json& status) {
  const auto& node = member(status, "node");
  const auto keeper = process_cpu_seconds(count_of(node, "pid"));
  const auto worker = process_cpu_seconds(count_of(node, "worker_pid"));
  if (!keeper || !worker) return std::nullopt;
  return *keeper + *worker;
}

}  // namespace

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
  watch.epoch_ = count_of(member(watch.status_, "node"), "epoch");
  watch.before_ = counters_of(watch.status_);
  watch.cpu_before_ = node_cpu(watch.status_);
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
  const std::uint64_t epoch = count_of(member(status_, "node"), "epoch");
  const node_movement now = counters_of(status_);
  if (epoch != std::exchange(epoch_, epoch)) before_ = {};
  const auto add = [](auto& to, auto from, auto till) { to += till < from ? 0 : till - from; };
  add(moved_.written_down, before_.written_down, now.written_down);
  add(moved_.read_up, before_.read_up, now.read_up);
  add(moved_.evicted, before_.evicted, now.evicted);
  add(moved_.dropped, before_.dropped, now.dropped);
  add(moved_.lower_evicted, before_.lower_evicted, now.lower_evicted);
  add(moved_.remote_put, before_.remote_put, now.remote_put);
  add(moved_.remote_got, before_.remote_got, now.remote_got);
  add(moved_.remote_unreachable, before_.remote_unreachable, now.remote_unreachable);
  add(moved_.remote_not_put, before_.remote_not_put, now.remote_not_put);
  add(moved_.cannot_win, before_.cannot_win, now.cannot_win);
  add(moved_.cut, before_.cut, now.cut);
  add(moved_.compared, before_.compared, now.compared);
  add(moved_.probes, before_.probes, now.probes);
  add(moved_.waited_s, before_.waited_s, now.waited_s);
  add(moved_.recompute_s, before_.recompute_s, now.recompute_s);
  add(moved_.saved_s, before_.saved_s, now.saved_s);
  add(moved_.lost_s, before_.lost_s, now.lost_s);
  add(moved_.checksum_errors, before_.checksum_errors, now.checksum_errors);
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
  return figures_in<node_figures>(status_).restarts - first_restarts_;
}

std::optional<double> node_watch::cpu_seconds() const {
  const auto now = node_cpu(status_);
  if (!now || !cpu_before_) return std::nullopt;
  return *now - *cpu_before_;
}

}  // namespace cenote::replay
