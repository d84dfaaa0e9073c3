// The thread that owns a manager's state.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/histogram.hpp"
#include "services/manager/service/command_queue.hpp"
#include "services/manager/service/registry_command.hpp"
#include "services/manager/service/served_view.hpp"
#include "services/manager/service/usage_report.hpp"
#include "services/manager/storages/plugin_storage.hpp"
#include "services/manager/store/journal.hpp"
#include "services/manager/writes/reclaimer.hpp"
#include "services/manager/writes/recovery.hpp"
#include "services/manager/writes/write_command.hpp"

namespace cenote::manager {

/// Opens the journal, for each recovery anew. A stop ends calls of the journal that wait.
using journal_opener = std::function<result<std::unique_ptr<journal>>(const std::stop_token&)>;

struct writer_options {
  journal_opener open_journal{};
  write_settings writes{};
  storage_worker_options storages{};
  registry_edit bootstrap{};                      ///< tried after each recovery; null: none
  std::string name{};                             ///< of this process, in the names of files that probes write
  std::map<storage_type, std::string> plugins{};  ///< commands by the type that they serve
  std::shared_ptr<fault_table> faults{};          ///< null: none can be injected
};

/// A reason of evictions.
struct evict_reason {
  std::string_view name{};
  std::uint64_t reclaim_counts::*count = nullptr;
};
inline constexpr auto evict_reasons = std::to_array<evict_reason>({
    {"bytes", &reclaim_counts::by_bytes},
    {"type", &reclaim_counts::by_type},
    {"storage", &reclaim_counts::by_storage},
    {"keys", &reclaim_counts::by_keys},
    {"time", &reclaim_counts::by_time},
});

/// Figures for pages. Counters since the start.
struct manager_figures {
  std::atomic<std::uint64_t> rounds{0};
  std::atomic<std::uint64_t> failed_rounds{0};
  std::atomic<std::uint64_t> recoveries{0};
  std::atomic<std::uint64_t> damaged_rows{0};
  std::atomic<std::uint64_t> sessions{0};
  std::atomic<std::uint64_t> waiting_removals{0};
  std::atomic<std::uint64_t> lost_extents{0};
  std::atomic<std::uint64_t> evicted{0};
  std::atomic<std::uint64_t> orphaned{0};
  std::atomic<std::uint64_t> journal_bytes{0};
  std::atomic<std::uint64_t> unhealthy_storages{0};
  std::atomic<std::uint64_t> failed_deletions{0};
  std::atomic<std::uint64_t> plugin_starts{0};
  std::atomic<std::uint64_t> plugin_failures{0};
  std::array<std::atomic<std::uint64_t>, evict_reasons.size()> evicted_for{};  ///< by its rows
  histogram journal_times;                                                     ///< ns of a batch
};

/// A row of the pages with figures.
struct manager_figure {
  std::string_view name{};    ///< of GetMetrics
  std::string_view metric{};  ///< behind "cenote_manager_"; a counter ends with "_total"
  std::string_view summary{};
  std::atomic<std::uint64_t> manager_figures::*value = nullptr;
};
/// All of them.
inline constexpr auto manager_figure_rows = std::to_array<manager_figure>({
    {"rounds", "journal_batches_total", "Batches that the journal was given.", &manager_figures::rounds},
    {"failed_rounds", "journal_failures_total", "Batches that it did not take.", &manager_figures::failed_rounds},
    {"recoveries", "recoveries_total", "Recoveries from the journal, the first one included.",
     &manager_figures::recoveries},
    {"damaged_rows", "damaged_rows_total", "Rows of the journal that could not be read.",
     &manager_figures::damaged_rows},
    {"sessions", "sessions", "Write sessions that are open.", &manager_figures::sessions},
    {"waiting_removals", "waiting_removals", "Ranges of blocks that wait for their deletion.",
     &manager_figures::waiting_removals},
    {"lost_extents", "lost_extents", "Extents with a damaged row, whose bytes are deleted by their names.",
     &manager_figures::lost_extents},
    {"evicted", "evicted_blocks_total", "Blocks that were evicted since the last recovery.", &manager_figures::evicted},
    {"orphaned", "orphaned_blocks_total", "Of these, blocks with a served block behind them.",
     &manager_figures::orphaned},
    {"journal_bytes", "journal_bytes_total", "Bytes of names and values that the journal was given.",
     &manager_figures::journal_bytes},
    {"unhealthy_storages", "unhealthy_storages", "Storages that are neither read nor written.",
     &manager_figures::unhealthy_storages},
    {"failed_deletions", "failed_deletions",
     "Deletions of blocks that failed and are repeated, of the storages that are there.",
     &manager_figures::failed_deletions},
    {"plugin_starts", "plugin_starts_total", "Starts of plug-ins.", &manager_figures::plugin_starts},
    {"plugin_failures", "plugin_failures_total", "Plug-ins that were ended for what they did, or that did not start.",
     &manager_figures::plugin_failures},
});

/// Takes commands from any thread and runs them in rounds: what came while the last round was written is the next one,
/// and one batch of the journal. Instances take turns, and a large command gives way after 4,096 keys. When the journal
/// fails, the round's commands are refused and everything is recovered from the store, with a higher epoch, at once or
/// after pauses that double; readers keep what they have meanwhile. It is an actor with a thread of its own, since the
/// journal blocks.
class manager_writer {
 public:
  explicit manager_writer(writer_options options);
  manager_writer(const manager_writer&) = delete;
  manager_writer& operator=(const manager_writer&) = delete;
  ~manager_writer() { stop(); }

  // Thread-safe.
  void post(std::unique_ptr<write_command> command);
  [[nodiscard]] const view_board& views() const noexcept { return views_; }
  [[nodiscard]] use_list& uses() noexcept { return uses_; }
  [[nodiscard]] const manager_figures& figures() const noexcept { return figures_; }
  [[nodiscard]] const usage_board& usage() const noexcept { return usage_; }
  /// Refuses what waits, and ends the thread.
  void stop() noexcept;

 private:
  class state_owner;

  void run();
  /// The state of a new epoch, unless it is too early to try again, or the store fails.
  void recover_when_due(std::unique_ptr<state_owner>& owner);
  void put_off_recovery();
  [[nodiscard]] std::unique_ptr<state_owner> recover();
  /// Makes what an empty registry begins with. False: the journal has failed.
  [[nodiscard]] bool begin(state_owner& owner);
  /// The same warning is given once.
  void warn_once(std::string reason);

  writer_options options_;
  view_board views_;
  use_list uses_;
  manager_figures figures_;
  usage_board usage_;
  std::shared_ptr<plugin_counters> plugin_counters_ = std::make_shared<plugin_counters>();
  command_inbox inbox_;
  std::string last_warning_;
  std::chrono::milliseconds pause_{0};  ///< before the next recovery, when that follows a failure
  round_time next_recovery_{};
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace cenote::manager
