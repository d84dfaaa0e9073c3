#include "commands/replay/engine.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "client/session.hpp"
#include "commands/common.hpp"
#include "commands/replay/engine_worker.hpp"

namespace cenote::replay {

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr auto call_deadline = 20s;
constexpr auto look_pause = 50ms;  // how soon a worker that waits sees that it shall stop
constexpr auto node_back_limit = 30s;
constexpr std::uint32_t least_pins = 256;
constexpr std::uint32_t most_pins = 65536;

/// For tests: every so many blocks that engine 0 makes, one byte is wrong.
std::uint64_t corruption_for_tests(std::uint32_t engine) {
  const char* const text = std::getenv("CENOTE_REPLAY_TEST_CORRUPT");
  std::uint64_t every = 0;
  if (text == nullptr || engine != 0) return 0;
  std::from_chars(text, text + std::string_view(text).size(), every);
  return every;
}

/// `device`: where its blocks lie; empty: in DRAM.
result<std::shared_ptr<client::session>> attach(const run_settings& settings, std::uint32_t number,
                                                std::string device) {
  client::session_options options;
  options.spec = spec_of(settings);
  options.device = std::move(device);
  options.socket = settings.sockets[settings.node_of(number)].data();
  options.client_name = "replay engine " + std::to_string(number + 1);
  options.max_pins = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(settings.longest_chain * settings.workers, least_pins, most_pins));
  options.deadline = call_deadline;
  auto session = client::session::attach(std::move(options));
  if (!session) return std::unexpected(session.error());
  return std::shared_ptr<client::session>(std::move(*session));
}

/// The engine's session, beside one in DRAM if it is on a device.
result<attached_session> attach_all(const run_settings& settings, std::uint32_t number) {
  attached_session all;
  auto session = attach(settings, number, settings.device.data());
  if (!session) return std::unexpected(session.error());
  all.session = std::move(*session);
  if (!settings.has_device()) return all;
  auto host = attach(settings, number, {});
  if (!host) return std::unexpected(host.error());
  all.host = std::move(*host);
  return all;
}

/// The engine's session; another one once its node was killed. Thread-safe.
class engine_session {
 public:
  engine_session(const shared_plan& plan, std::uint32_t engine) : plan_(plan), engine_(engine) {}

  /// Attaches if there is none, and waits for a node that was killed to come back.
  result<attached_session> get() {
    const std::lock_guard lock(mutex_);
    const auto until = steady_clock::now() + node_back_limit;
    while (!now_.session) {
      const std::uint32_t kills = plan_.kills(plan_.settings().node_of(engine_));
      auto session = attach_all(plan_.settings(), engine_);
      if (session) {
        now_ = std::move(*session);
        now_.kills = kills;
      } else if (kills == 0 || plan_.stopped() || steady_clock::now() > until) {
        return std::unexpected(session.error());
      } else {
        std::this_thread::sleep_for(look_pause);
      }
    }
    return now_;
  }
  /// This one is of no use any more.
  void give_up(const attached_session& lost) {
    const std::lock_guard lock(mutex_);
    if (now_.session == lost.session) now_ = {};
  }
  void close() {
    const std::lock_guard lock(mutex_);
    for (const auto& each : {now_.session, now_.host}) {
      if (each) static_cast<void>(each->close());
    }
  }

 private:
  const shared_plan& plan_;
  std::uint32_t engine_;
  std::mutex mutex_;
  attached_session now_;
};

/// The requests of one engine, taken by its workers in the order of the trace.
class work_list {
 public:
  work_list(const shared_plan& plan, std::uint32_t engine) : plan_(plan) {
    for (const planned_request& each : plan.requests()) {
      if (each.engine == engine) list_.push_back(&each);
    }
  }

  /// The next request, when it is due; null when there is none, or the plan says stop.
  const planned_request* take(tally& into) {
    const std::size_t place = next_.fetch_add(1, std::memory_order_relaxed);
    if (place >= list_.size() || failed_.load(std::memory_order_relaxed)) return nullptr;
    return wait_until_due(*list_[place], into) ? list_[place] : nullptr;
  }

  void fail_with(const error& why) {
    const std::lock_guard lock(mutex_);
    if (!why_) why_ = why;
    failed_.store(true, std::memory_order_relaxed);
  }
  [[nodiscard]] std::optional<error> failure() {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  bool wait_until_due(const planned_request& request, tally& into) const {
    const double speed = plan_.settings().speed;
    if (speed <= 0) return !plan_.stopped();
    const auto offset = std::chrono::duration<double, std::milli>(static_cast<double>(request.due_ms) / speed);
    const auto due = steady_clock::time_point(std::chrono::nanoseconds(plan_.started())) +
                     std::chrono::duration_cast<std::chrono::nanoseconds>(offset);
    while (!plan_.stopped()) {
      const auto now = steady_clock::now();
      if (now >= due) {
        into.late.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(now - due).count()));
        return true;
      }
      std::this_thread::sleep_until(std::min(due, now + look_pause));
    }
    return false;
  }

  const shared_plan& plan_;
  std::vector<const planned_request*> list_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::optional<error> why_;
};

void serve_all(const shared_plan& plan, std::uint32_t engine, std::uint32_t number, engine_session& session,
               work_list& work) {
  engine_worker mine(plan, engine, number, number == 0 ? corruption_for_tests(engine) : 0);
  while (const planned_request* const next = work.take(plan.worker(engine, number))) {
    const auto at = session.get();
    if (!at) return work.fail_with(at.error());
    const auto served = mine.serve(*next, *at);
    if (served) continue;
    if (!mine.lost_node(*at)) return work.fail_with(served.error());
    session.give_up(*at);
  }
}

}  // namespace

result<void> run_engine(const shared_plan& plan, std::uint32_t number) {
  const run_settings& how = plan.settings();
  if (number >= how.engines) return fail(error_code::invalid_argument, "there is no engine of that number");
  engine_state& state = plan.engine(number);
  engine_session session(plan, number);
  if (const auto attached = session.get(); !attached) {
    shared_plan::say(state, attached.error().describe());
    state.phase.store(engine_phase::failed);
    return std::unexpected(attached.error());
  }
  work_list work(plan, number);
  state.phase.store(engine_phase::ready);
  while (plan.started() == 0 && !plan.stopped()) std::this_thread::sleep_for(1ms);
  {
    std::vector<std::jthread> others;
    for (std::uint32_t i = 1; i < how.workers; ++i) {
      others.emplace_back([&, i] { serve_all(plan, number, i, session, work); });
    }
    serve_all(plan, number, 0, session, work);
  }
  session.close();
  const auto failure = work.failure();
  state.phase.store(failure ? engine_phase::failed : engine_phase::done);
  if (failure) return std::unexpected(*failure);
  return {};
}

}  // namespace cenote::replay

namespace cenote {

namespace {

exit_code run_engine_process(int fd, std::uint32_t number) {
  auto plan = replay::shared_plan::open(unique_fd(fd));
  if (!plan) return failed_with(plan.error());
  // The replay says on its own what went wrong here.
  return replay::run_engine(*plan, number) ? exit_code::orderly : exit_code::failed;
}

}  // namespace

void add_replay_engine(CLI::App& app) {
  auto* command = app.add_subcommand("replay-engine", "An engine process of `cenote replay`; started by it only");
  command->group("");  // not in the help
  struct options {
    int plan = -1;
    std::uint32_t number = 0;
  };
  auto chosen = std::make_shared<options>();
  command->add_option("--plan", chosen->plan)->required();
  command->add_option("--number", chosen->number)->required();
  command->callback([chosen] { end_with(run_engine_process(chosen->plan, chosen->number)); });
}

}  // namespace cenote
