// The foreground process of `cenote node`: it owns the listening socket and every descriptor that must outlive a
// worker, and keeps one worker running. One thread, one poll loop, asleep while nothing happens.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "keeper/child_process.hpp"
#include "keeper/exit_code.hpp"
#include "keeper/keeper_state.hpp"
#include "keeper/restart_policy.hpp"
#include "keeper/silence.hpp"
#include "transport/local/registry.hpp"

namespace cenote {

/// How a keeper starts its worker, and its successor at an upgrade. Tests put their own programs here.
struct keeper_options {
  std::string socket;
  std::string runtime_dir;
  /// Program and first arguments of a worker; `--keeper-fd N` and `arguments` follow. An empty first word stands for
  /// this very binary, even if its file was replaced meanwhile.
  std::vector<std::string> worker_command{"", "worker"};
  /// Program and first arguments of the next keeper; `--resume FD` and `arguments` follow. An empty first word stands
  /// for what now lies at the path at which this program was started.
  std::vector<std::string> node_command{"", "node"};
  /// Must end with status 0 before an upgrade stops anything; `arguments` follow. First word as in node_command.
  std::vector<std::string> probe_command{"", "config", "check"};
  std::vector<std::string> arguments;  ///< --config and --set
  std::optional<int> resume_fd;        ///< what --resume named
  /// From SIGTERM to SIGKILL of a worker that does not end.
  std::chrono::milliseconds stop_limit{9500};
  /// A worker that was ready is replaced when it, or a part of it, is silent for so long; 0: never.
  std::chrono::milliseconds hang_timeout{0};
  /// The same for one that is not ready yet; not in force when hang_timeout is 0.
  std::chrono::milliseconds start_limit{std::chrono::minutes(10)};
  /// Text of the configuration that the node runs with (config::running_text); empty: each worker reads the sources.
  std::string running;
  /// Called with the text of the configuration in force: that of the keeper before an upgrade, and each that a worker
  /// accepted on SIGHUP.
  std::function<void(keeper_options&, const std::string& running)> on_running;
};

/// Not thread-safe; the process must have no other thread. Blocks and reads the process's signals.
class keeper {
 public:
  explicit keeper(keeper_options options);
  keeper(const keeper&) = delete;
  keeper& operator=(const keeper&) = delete;
  ~keeper() = default;

  /// Runs until the node ends. A failure is printed (one line, standard error) and mapped to its exit code.
  [[nodiscard]] exit_code run();

 private:
  using clock = std::chrono::steady_clock;
  using time_point = clock::time_point;

  enum class phase { serving, stopping, upgrading };

  /// A packet that the worker's queue had no room for yet.
  struct outgoing {
    local::link_header header;
    std::vector<std::byte> payload;
    std::vector<unique_fd> fds;
  };

  // Start.
  result<void> begin();
  void resume(int fd);
  result<void> take_signals();
  result<void> take_lock();
  result<void> listen(time_point limit);
  result<void> store_configuration();
  void apply_configuration();

  // The loop.
  void wait_and_handle();
  [[nodiscard]] std::optional<time_point> next_timer() const;
  void handle_timers(time_point now);
  void handle_signals();
  void stop(int signal);
  void reload();
  void finish(exit_code code);

  // The worker.
  void reopen_listener();
  void start_worker();
  void handle_worker_end();
  void worker_failed(const process_end& end, time_point now);
  void kill_worker(std::string_view why);
  void schedule_heartbeat_check();
  void check_heartbeat(time_point now);
  void on_heartbeat(const local::link_packet& packet);

  // The link.
  void receive_from_worker();
  void handle_packet(local::link_packet&& packet);
  void flush_link();
  [[nodiscard]] result<bool> send_handover();
  [[nodiscard]] bool wants_to_send() const noexcept;
  void answer(const local::link_header& to, const result<void>& outcome);
  void answer_with_listener(const local::link_header& request);
  void worker_ready();

  // Upgrade.
  [[nodiscard]] result<void> may_upgrade() const;
  void begin_upgrade();
  void replace_self();

  keeper_options options_;
  std::string program_;  ///< the path of this binary when it started
  keeper_state state_;
  unique_fd signals_;
  phase phase_ = phase::serving;
  std::optional<exit_code> done_;

  restart_policy policy_;
  std::optional<child_process> worker_;
  time_point worker_started_{};
  bool worker_ready_ = false;
  std::string last_words_;  ///< what the worker said before it died
  std::optional<time_point> restart_at_;
  std::optional<time_point> kill_at_;
  bool killed_late_ = false;                      ///< the worker did not end before kill_at_ and was killed
  bool reload_asked_ = false;                     ///< SIGHUP came while no worker was ready
  silence_meter silence_;                         ///< of the worker or a part of it
  std::string silent_part_;                       ///< which part
  std::optional<time_point> check_heartbeat_at_;  ///< when the silence is looked at next

  std::uint64_t listener_number_ = 0;  ///< 0: the listening socket of the handover, +1 for each later one

  unique_fd link_;
  enum class handover_step { begin, entries, end, done };
  handover_step handover_ = handover_step::begin;
  std::optional<local::registry::key> last_entry_;  ///< the last one that was handed over
  std::deque<outgoing> outbox_;
  std::optional<time_point> retry_send_at_;
};

}  // namespace cenote
