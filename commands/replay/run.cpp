#include "commands/replay/run.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/node_status.hpp"
#include "commands/replay/nodes.hpp"
#include "commands/replay/progress.hpp"
#include "keeper/child_process.hpp"

namespace cenote::replay {

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr auto attach_limit = 30s;
constexpr int loop_pause_ms = 200;
constexpr int kill_pause_ms = 5;       // while one is ahead, or a node is on its way back
constexpr double sample_every = 0.5;   // seconds
constexpr double stop_patience = 10;   // seconds that engines have for their last request
constexpr double orphan_patience = 1;  // … when the node is dead: they only wait for it
constexpr std::uint32_t paced_workers = 4;
constexpr std::uint64_t ns_per_ms = 1'000'000;

double seconds_between(steady_clock::time_point begin, steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

template <std::size_t N>
result<void> set_text(std::array<char, N>& to, const std::string& text, std::string_view what) {
  if (text.size() >= N) {
    return fail(error_code::invalid_argument, fmt::format("{} is longer than {} bytes: {}", what, N - 1, text));
  }
  std::memcpy(to.data(), text.data(), text.size());
  return {};
}

struct engine_process {
  child_process process;
  std::optional<process_end> end{};
};

/// One replay, from its node to its result. Not thread-safe.
class replay_run {
 public:
  replay_run(const simulation::trace& trace, const run_options& options) : trace_(trace), options_(options) {}

  result<replay_result> carry_out() {
    auto nodes = replay_nodes::open(trace_, options_);
    if (!nodes) return std::unexpected(nodes.error());
    nodes_.emplace(std::move(*nodes));
    if (auto ok = start_engines(); !ok) return std::unexpected(ok.error());
    follow();
    conclude();
    return std::move(out_);
  }

 private:
  // ---- before

  result<run_settings> settings() const {
    run_settings chosen;
    chosen.block_bytes = options_.block_bytes;
    chosen.block_tokens = trace_.block_tokens();
    chosen.speed = options_.speed;
    chosen.nodes = nodes_->size();
    chosen.engines = options_.engines * chosen.nodes;
    chosen.workers = options_.workers != 0 ? options_.workers : options_.speed > 0 ? paced_workers : 1;
    chosen.verify = options_.verify;
    chosen.access = options_.access;
    chosen.lower_tier = member(status(), "nvme").is_object() ? 1 : 0;
    chosen.remote_tier = member(status(), "remote").is_object() ? 1 : 0;
    if (options_.gpu) {
      if (auto ok = set_text(chosen.device, options_.gpu->name, "--gpu"); !ok) return std::unexpected(ok.error());
    }
    chosen.prefetch_wait_ns = static_cast<std::uint64_t>(options_.prefetch_wait.count());
    chosen.prefill_rate = options_.prefill_rate;
    for (const auto& each : trace_.requests())
      chosen.longest_chain = std::max<std::uint64_t>(chosen.longest_chain, each.count);
    for (std::uint32_t i = 0; i < chosen.nodes; ++i) {
      if (auto ok = set_text(chosen.sockets[i], nodes_->socket(i), "--socket"); !ok) return std::unexpected(ok.error());
    }
    // The process in the name: two replays at one node do not meet.
    const auto name = fmt::format("replay-{}-{}", ::getpid(), steady_clock::now().time_since_epoch().count());
    if (auto ok = set_text(chosen.instance, name, "the instance's name"); !ok) return std::unexpected(ok.error());
    return chosen;
  }

  result<void> start_engines() {
    const auto chosen = settings();
    if (!chosen) return std::unexpected(chosen.error());
    const auto node_of = simulation::routes_of(trace_, chosen->nodes, options_.route);
    const auto engine_of = partition(trace_, options_.engines, options_.partition, node_of);
    auto plan = shared_plan::create(*chosen, trace_, engine_of);
    if (!plan) return std::unexpected(plan.error());
    plan_.emplace(std::move(*plan));
    for (std::uint32_t i = 0; i < chosen->engines; ++i) {
      child_process::setup child;
      child.program = "/proc/self/exe";
      child.command = {"cenote", "replay-engine", "--plan", std::to_string(plan_->fd()), "--number", std::to_string(i)};
      child.inherit = plan_->fd();
      child.die_with_parent = true;
      child.own_group = true;
      auto process = child_process::start(child);
      if (!process) return std::unexpected(process.error());
      engines_.push_back({std::move(*process)});
      out_.engines.push_back({.number = i, .planned = static_cast<std::uint64_t>(std::ranges::count(engine_of, i))});
    }
    return wait_until_ready();
  }

  result<void> wait_until_ready() {
    const auto until = steady_clock::now() + attach_limit;
    while (true) {
      bool all = true;
      for (std::uint32_t i = 0; i < engines_.size(); ++i) {
        const auto phase = plan_->engine(i).phase.load();
        if (phase == engine_phase::ready) continue;
        all = false;
        const auto end = engines_[i].process.ended();
        if (!end) continue;
        const std::string said = shared_plan::said(plan_->engine(i));
        return fail(error_code::not_running,
                    fmt::format("engine {} did not attach: {}", i + 1, said.empty() ? end->describe() : said));
      }
      if (all) return {};
      if (auto go_on = check_interrupted(); !go_on) return go_on;
      if (steady_clock::now() > until) {
        return fail(error_code::deadline_exceeded, "the engines did not attach to the node in time");
      }
      ::poll(nullptr, 0, 2);
    }
  }

  // ---- meanwhile

  void follow() {
    started_ = steady_clock::now();
    plan_->go(started_.time_since_epoch().count());
    progress line(options_.quiet);
    double next_sample = 0;
    while (engines_running()) {
      wait_for_ends();
      const double now = elapsed();
      carry_out_kill(now);
      if (interrupted() && !out_.interrupted) {
        out_.interrupted = true;
        stop(stop_patience);
      }
      look_after_nodes(now);
      if (now >= next_sample) {
        if (nodes_->look()) take_sample(now);
        next_sample = now + sample_every;
      }
      line.show(state(now));
      if (stop_at_ && now > *stop_at_) end_engines();
    }
    out_.seconds = elapsed();
    if (!out_.interrupted) line.show(state(out_.seconds));
    line.finish();
  }

  [[nodiscard]] double elapsed() const { return seconds_between(started_, steady_clock::now()); }

  bool engines_running() {
    bool any = false;
    for (auto& each : engines_) {
      if (!each.end) each.end = each.process.ended();
      any |= !each.end;
    }
    return any;
  }

  void wait_for_ends() {
    std::vector<pollfd> ends;
    for (const auto& each : engines_) {
      if (!each.end) ends.push_back({.fd = each.process.pidfd(), .events = POLLIN, .revents = 0});
    }
    ::poll(ends.data(), ends.size(), kill_is_near() ? kill_pause_ms : loop_pause_ms);
  }

  void stop(double patience) {
    plan_->stop();
    const double at = elapsed() + patience;
    stop_at_ = stop_at_ ? std::min(*stop_at_, at) : at;
  }

  void end_engines() {
    for (auto& each : engines_) {
      if (!each.end) each.process.signal(SIGKILL);
    }
  }

  // ---- a node that is killed

  [[nodiscard]] bool kill_is_near() const {
    return options_.kill && (!killed_ || nodes_->is_down(options_.kill->node));
  }

  void carry_out_kill(double now) {
    if (!options_.kill) return;
    const std::uint32_t which = options_.kill->node;
    if (!killed_) {
      const auto sums = std::make_unique<tally>();
      plan_->sum(*sums);
      const auto due = options_.kill->at * static_cast<double>(plan_->requests().size());
      if (static_cast<double>(sums->requests.get()) < due) return;
      killed_ = now;
      plan_->note_kill(which);
      nodes_->kill(which, now);
    }
    if (!nodes_->is_down(which)) return;
    if (auto ok = nodes_->revive(now); !ok) return lose_node(ok.error().describe());
    if (nodes_->look_at(which)) back_ = now;
  }

  void look_after_nodes(double now) {
    if (node_lost_) return;
    if (auto why = nodes_->loss(now)) lose_node(std::move(*why));
  }

  void lose_node(std::string reason) {
    node_lost_ = true;
    out_.failures.push_back(std::move(reason));
    stop(orphan_patience);
  }

  void take_sample(double now) {
    const auto sums = std::make_unique<tally>();
    plan_->sum(*sums);
    sample point;
    point.seconds = now;
    point.requests = sums->requests.get();
    point.tokens = sums->tokens.get();
    point.blocks = sums->blocks.get();
    point.gpu_hits = sums->gpu_hits.get();
    point.upper_hits = sums->upper_hits.get();
    point.lower_hits = sums->lower_hits.get();
    point.hit_tokens = sums->hit_tokens.get();
    point.gpu_tokens = sums->gpu_tokens.get();
    point.upper_tokens = sums->upper_tokens.get();
    point.remote_tokens = sums->remote_tokens.get();
    point.bytes_read = sums->bytes_read.get();
    point.bytes_stored = sums->bytes_stored.get();
    point.gpu_used = of_devices("used");
    for (std::uint32_t i = 0; i < nodes_->size(); ++i) {
      point.dram_used += figures_in<blocks::store_status>(nodes_->watch(i).status()).used;
      point.nvme_used += figures_in<nvme::store_status>(nodes_->watch(i).status()).used;
    }
    point.disk = nodes_->watch(0).disk();
    point.at_work = policy_at_work();
    point.moved = nodes_->moved();
    out_.timeline.push_back(point);
  }

  /// Of the first node; all have the same settings.
  [[nodiscard]] const nlohmann::json& status() const { return nodes_->watch(0).status(); }

  /// A figure of the devices' tiers; 0: there are none.
  [[nodiscard]] std::uint64_t of_devices(const char* figure) const {
    std::uint64_t all = 0;
    for (const auto& each : member(member(status(), "gpu"), "devices")) all += count_of(each, figure);
    return all;
  }

  /// Of the replay's own instance.
  [[nodiscard]] std::string policy_at_work() const {
    for (const auto& each : member(status(), "instances")) {
      const auto& chosen = member(member(each, "policy"), "at_work");
      if (chosen.is_string() && text_of(each, "id") == plan_->settings().instance.data())
        return chosen.get<std::string>();
    }
    return {};
  }

  [[nodiscard]] progress_state state(double now) const {
    const auto sums = std::make_unique<tally>();
    plan_->sum(*sums);
    progress_state at{.seconds = now,
                      .done = sums->requests.get(),
                      .planned = plan_->requests().size(),
                      .bytes = sums->bytes_read.get() + sums->bytes_stored.get(),
                      .hit_tokens = sums->hit_tokens.get(),
                      .tokens = sums->tokens.get()};
    if (options_.speed > 0 && !plan_->requests().empty()) {
      const double all = static_cast<double>(plan_->requests().back().due_ms) / 1000 / options_.speed;
      at.seconds_left = std::max(0.0, all - now);
    }
    return at;
  }

  // ---- after

  void conclude() {
    if (killed_ && !back_ && nodes_->look_at(options_.kill->node)) back_ = out_.seconds;
    if (!node_lost_ && nodes_->look()) take_sample(out_.seconds);
    plan_->sum(*out_.sums);
    out_.trace = options_.trace;
    out_.settings = plan_->settings();
    out_.planned = plan_->requests().size();
    out_.distinct_blocks = trace_.distinct();
    out_.moved = nodes_->moved();
    out_.disk = nodes_->watch(0).disk();
    out_.restarts = nodes_->restarts();
    out_.node_cpu_seconds = node_lost_ ? std::nullopt : nodes_->cpu_seconds();
    out_.policy = text_of(member(status(), "dram"), "policy");
    out_.has_remote = plan_->settings().remote_tier != 0;
    out_.gpu_capacity = of_devices("capacity");
    out_.own_node = nodes_->are_own();
    gather_nodes();
    gather_served();
    judge_engines();
    judge_bytes();
    judge_sums();
    leave_nodes();
  }

  void gather_nodes() {
    for (std::uint32_t i = 0; i < nodes_->size(); ++i) {
      node_result& each = out_.nodes.emplace_back(node_result{.name = nodes_->name(i)});
      const auto& said = nodes_->watch(i).status();
      each.dram_capacity = figures_in<blocks::store_status>(said).capacity;
      each.nvme_capacity = figures_in<nvme::store_status>(said).capacity;
      each.moved = nodes_->watch(i).moved();
      out_.dram_capacity += each.dram_capacity;
      out_.nvme_capacity += each.nvme_capacity;
      for (std::uint32_t e = 0; e < plan_->settings().engines; ++e) {
        if (plan_->settings().node_of(e) != i) continue;
        plan_->sum(e, *each.sums);
        each.planned += out_.engines[e].planned;
      }
      if (!killed_ || options_.kill->node != i) continue;
      each.killed_at = killed_;
      if (back_) each.back_after = *back_ - *killed_;
    }
  }

  void gather_served() {
    std::vector<const planned_request*> served;
    const auto begun = [&](const planned_request* each) { return plan_->result_of(*each).begun_ns.get(); };
    for (const planned_request& each : plan_->requests()) {
      if (begun(&each) != 0) served.push_back(&each);
    }
    std::ranges::stable_sort(served, {}, begun);
    for (const planned_request* each : served) {
      out_.ran.add(begun(each) / ns_per_ms, each->tokens, plan_->ids(*each));
      out_.ran_at.push_back(plan_->settings().node_of(each->engine));
    }
  }

  void judge_engines() {
    for (std::uint32_t i = 0; i < engines_.size(); ++i) {
      engine_result& engine = out_.engines[i];
      for (std::uint32_t l = 0; l < out_.settings.workers; ++l) engine.served += plan_->worker(i, l).requests.get();
      const auto sums = std::make_unique<tally>();
      plan_->sum(i, *sums);
      engine.tokens = sums->tokens.get();
      engine.hit_tokens = sums->hit_tokens.get();
      engine.bytes_read = sums->bytes_read.get();
      engine.bytes_stored = sums->bytes_stored.get();
      engine.message = shared_plan::said(plan_->engine(i));
      const process_end end = engines_[i].end.value_or(process_end{});
      engine.orderly = !end.by_signal && end.value == 0;
      if (engine.orderly || node_lost_) continue;
      engine.end = end.describe();
      out_.failures.push_back(fmt::format("engine {} ended with {} after {} of its {} requests{}", i + 1, engine.end,
                                          engine.served, engine.planned,
                                          engine.message.empty() ? "" : ": " + engine.message));
    }
    if (const auto failed = out_.sums->failed.get(); failed > 0) {
      out_.failures.push_back(fmt::format("{} requests failed{}", failed, first_message()));
    }
  }

  void judge_bytes() {
    if (const auto wrong = out_.sums->wrong.get(); wrong > 0) {
      out_.failures.push_back(fmt::format("{} blocks were read with wrong bytes{}", wrong, first_message()));
    }
  }

  /// Only of a device: elsewhere it is so by the way in which blocks are counted.
  void judge_sums() {
    const bool is_whole = !out_.interrupted && std::ranges::all_of(out_.engines, &engine_result::orderly);
    if (!out_.has_gpu() || !is_whole) return;
    if (auto why = out_.sums->wrong_sum()) out_.failures.push_back(std::move(*why));
  }

  [[nodiscard]] std::string first_message() const {
    for (const auto& each : out_.engines) {
      if (!each.message.empty()) return fmt::format("; engine {}: {}", each.number + 1, each.message);
    }
    return {};
  }

  /// Our blocks are of no use to anybody else.
  void leave_nodes() {
    if (node_lost_) return;
    if (!nodes_->are_own() || !options_.remote.empty()) {
      static_cast<void>(ask(nodes_->socket(0), {{"command", "clear"}, {"instance", out_.settings.instance.data()}}));
    }
    nodes_.reset();
  }

  const simulation::trace& trace_;
  const run_options& options_;
  std::optional<replay_nodes> nodes_;
  std::optional<shared_plan> plan_;
  std::vector<engine_process> engines_;  // after the node: ended before it
  steady_clock::time_point started_;
  std::optional<double> stop_at_;  ///< seconds after the start
  std::optional<double> killed_;   ///< …
  std::optional<double> back_;     ///< …
  bool node_lost_ = false;
  replay_result out_;
};

}  // namespace

result<replay_result> run(const simulation::trace& trace, const run_options& options) {
  replay_run one(trace, options);
  return one.carry_out();
}

}  // namespace cenote::replay
