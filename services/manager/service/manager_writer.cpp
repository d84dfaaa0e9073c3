#include "services/manager/service/manager_writer.hpp"

#include <algorithm>

#include "config/logging.hpp"
#include "services/manager/service/faulty_storage.hpp"
#include "services/manager/service/storage_opening.hpp"
#include "services/manager/writes/departures.hpp"
#include "services/manager/writes/finish_write.hpp"
#include "services/manager/writes/served_blocks.hpp"

namespace cenote::manager {

namespace {

using namespace std::chrono_literals;

constexpr auto look_pause = 100ms;   ///< between two looks at levels, storages and what has come to its end
constexpr auto first_pause = 500ms;  ///< before the store is tried again
constexpr auto last_pause = 4000ms;
constexpr auto usage_pause = 1000ms;  ///< between two reports of what is used
constexpr auto probe_pause = 5ms;     ///< between two looks at storages whose first probe is waited for
constexpr std::chrono::milliseconds most_probe_wait = 1000ms;  ///< a storage that hangs delays no longer than that

std::unique_ptr<storage_backend> backend_of(const storage_terms& storage, const writer_options& options,
                                            std::shared_ptr<plugin_counters> counters) {
  auto made = open_storage(
      storage, {.name = options.name, .plugins = options.plugins, .timeout = options.storages.probe_timeout},
      std::move(counters));
  if (made && options.faults != nullptr) return std::make_unique<faulty_storage>(std::move(*made), options.faults);
  if (made) return std::move(*made);
  log_warn(logger("manager"), "a storage cannot be opened",
           {{"storage", storage.name}, {"reason", made.error().message()}});
  return nullptr;
}

}  // namespace

/// All that belongs to one epoch. Its parts refer to each other, so it stays where it is.
class manager_writer::state_owner {
 public:
  state_owner(manager_writer& writer, std::unique_ptr<journal> rows, std::uint64_t incarnation)
      : writer_(writer),
        rows_(std::move(rows)),
        incarnation_(incarnation),
        make_worker_([this](const storage_terms& storage) { return make_worker(storage); }),
        removals_(state_, writer.options_.writes),
        changes_(
            state_, *rows_, [this](const due_removal& removal) { removals_.add(removal); },
            writer.options_.faults.get()),
        reclaimer_(state_),
        parts_{.state = state_,
               .changes = changes_,
               .removals = removals_,
               .sessions = sessions_,
               .settings = writer.options_.writes,
               .make_worker = make_worker_,
               .has_new_registry = has_changed_} {}
  state_owner(const state_owner&) = delete;
  state_owner& operator=(const state_owner&) = delete;
  ~state_owner() { end_probe_waits(round_time::max()); }

  [[nodiscard]] result<recovery_counts> recover();
  /// Waits for the first probe of each storage, but not for one that hangs.
  void await_probes();
  void add(std::unique_ptr<write_command> command) { queue_.add(std::move(command)); }
  void add(const storage_news& news);
  /// One round. False: the journal has failed.
  [[nodiscard]] bool run_round();
  [[nodiscard]] round_time next_event() const;
  [[nodiscard]] std::vector<std::unique_ptr<write_command>> take_waiting() { return queue_.take_all(); }

  [[nodiscard]] bool has_commands() const noexcept { return !queue_.empty(); }
  /// Whether the journal has taken a batch of this epoch.
  [[nodiscard]] bool has_written() const noexcept { return has_written_; }
  void show_view();

 private:
  std::unique_ptr<storage_worker> make_worker(const storage_terms& storage);
  /// The longest wait for a first probe.
  [[nodiscard]] std::chrono::milliseconds probe_wait() const noexcept {
    return std::min(writer_.options_.storages.probe_timeout, most_probe_wait);
  }
  [[nodiscard]] bool is_probed() const;
  void answer(std::unique_ptr<write_command> command, const result<>& committed, round_time now);
  /// Answers those that wait for probes, once these have ended or the wait is over.
  void end_probe_waits(round_time now);
  void look(storage_state& storage);
  void look_at_storages();
  void look(write_round& round);
  void note_uses(round_time now);
  void walk_departures(write_round& round);
  void end_departures();
  void note_batch(std::chrono::nanoseconds time);
  void show_figures();

  manager_writer& writer_;
  std::unique_ptr<journal> rows_;
  std::uint64_t incarnation_;
  worker_factory make_worker_;
  manager_state state_;
  write_sessions sessions_;
  removal_queue removals_;
  ledger changes_;
  reclaimer reclaimer_;
  write_parts parts_;
  command_queue queue_;
  std::deque<std::pair<round_time, std::unique_ptr<write_command>>>
      probe_waits_;  ///< answers that wait for probes, until then
  bool has_changed_ = false;
  bool has_written_ = false;
  bool has_more_ = false;  ///< to do at once
  round_time next_look_{}, next_usage_{};
  std::shared_ptr<const storage_table> storages_;
  std::map<std::uint64_t, extent_walk> departures_;
};

std::unique_ptr<storage_worker> manager_writer::state_owner::make_worker(const storage_terms& storage) {
  auto backend = backend_of(storage, writer_.options_, writer_.plugin_counters_);
  if (backend == nullptr) return nullptr;
  return std::make_unique<storage_worker>(
      std::move(backend), writer_.options_.storages,
      [inbox = &writer_.inbox_, incarnation = incarnation_](removal_outcome outcome) {
        inbox->add({.incarnation = incarnation, .outcome = std::move(outcome)});
      });
}

result<recovery_counts> manager_writer::state_owner::recover() {
  recovery_parts parts{
      .state = state_,
      .sessions = sessions_,
      .removals = [this](const due_removal& removal) { removals_.add(removal); },
      .make_worker = make_worker_,
      .damages = [this](const lost_extent& extent) { removals_.add(extent); },
      .finishes = [this](const extent_name& name, round_time due) { changes_.erase_rows_later(name, due); },
      .faults = writer_.options_.faults.get()};
  for (const auto& [type, command] : writer_.options_.plugins) parts.plugins.insert(type);
  auto counts = manager::recover(*rows_, parts, std::chrono::steady_clock::now());
  return counts;
}

void manager_writer::state_owner::add(const storage_news& news) {
  if (news.incarnation != incarnation_) return;
  removals_.complete(news.outcome, changes_, std::chrono::steady_clock::now());
}

void manager_writer::state_owner::show_view() {
  auto table = std::make_shared<storage_table>();
  for (std::size_t i = 0; i < most_storages; ++i) {
    const auto& storage = state_.storages[i];
    if (storage == nullptr) continue;
    const auto& previous = storages_ == nullptr ? nullptr : (*storages_)[i];
    if (previous != nullptr && previous->terms == storage->terms && previous->signal == storage->signal) {
      (*table)[i] = previous;
    } else {
      (*table)[i] =
          std::make_shared<const served_storage>(served_storage{.terms = storage->terms, .signal = storage->signal});
    }
  }
  if (storages_ == nullptr || *storages_ != *table) storages_ = std::move(table);
  const auto previous = writer_.views_.take();
  auto view = std::make_shared<served_view>();
  view->settings = state_.settings;
  view->epoch = state_.epoch;
  view->is_ready = true;
  view->storages = storages_;
  for (const auto& [id, number] : state_.instance_numbers) {
    const instance_state& instance = *state_.instance(number);
    const auto same = previous->instances.find(id);
    if (same != previous->instances.end() &&
        same->second->is_of(instance.terms.get(), instance.group->terms.get(), instance.index.get(), storages_.get())) {
      view->instances.emplace(id, same->second);
    } else {
      view->instances.emplace(id, std::make_shared<const served_instance>(instance.terms, instance.group->terms,
                                                                          instance.index, storages_));
    }
  }
  writer_.views_.show(std::move(view));
}

void manager_writer::state_owner::note_uses(round_time now) {
  const std::uint32_t tenths = tenths_of(now);
  for (const auto& used : writer_.uses_.take()) {
    instance_state* const instance = state_.instance(used->instance);
    if (instance != nullptr) manager::note_uses(*instance, used->records, tenths);
  }
}

void manager_writer::state_owner::walk_departures(write_round& round) {
  for (const auto& [number, instance] : state_.instances) {
    if (!instance->is_departing) continue;
    auto& walk = departures_.try_emplace(number, extent_walk::action::remove, extent_walk::filter{}).first->second;
    has_more_ |= !walk.advance(parts_, *instance, round);
  }
}

/// Instances without an extent are gone for good; without their rows the places of their lost extents are not known.
void manager_writer::state_owner::end_departures() {
  std::erase_if(state_.instances, [&](const auto& entry) {
    const instance_state& instance = *entry.second;
    if (!instance.is_departing || instance.index->extents().size() != 0 || instance.lost_extents != 0) return false;
    changes_.add_row(departure_end(entry.first));
    departures_.erase(entry.first);
    return true;
  });
}

void manager_writer::state_owner::look(storage_state& storage) {
  const bool has_worker = storage.worker != nullptr;
  storage.condition = has_worker ? storage.worker->condition() : storage_condition::unhealthy;
  std::string reason = has_worker ? storage.worker->last_failure() : "it cannot be opened; the log has the reason";
  if (storage.condition == storage_condition::unhealthy && reason.empty()) reason = "it hangs";
  if (storage.condition == storage_condition::unprobed && reason.empty()) reason = "its first probe has not ended";
  if (storage.condition != storage.signal->condition()) {
    log_info(logger("manager"), "a storage has another condition",
             {{"storage", storage.terms->name}, {"condition", name_of(storage.condition)}, {"reason", reason}});
  }
  storage.signal->show(storage.condition, std::move(reason));
}

void manager_writer::state_owner::look(write_round& round) {
  std::uint64_t unhealthy = 0, failed_deletions = 0;
  look_at_storages();
  for (const auto& storage : state_.storages) {
    if (storage == nullptr) continue;
    if (!is_readable(storage->condition)) ++unhealthy;
    failed_deletions += storage->failed_deletions;
  }
  writer_.figures_.unhealthy_storages.store(unhealthy, std::memory_order_relaxed);
  writer_.figures_.failed_deletions.store(failed_deletions, std::memory_order_relaxed);
  walk_departures(round);
  end_departures();
  if (round.now < next_usage_) return;
  writer_.usage_.show(report_usage(state_, round.now));
  next_usage_ = round.now + usage_pause;
}

void manager_writer::state_owner::look_at_storages() {
  for (const auto& storage : state_.storages) {
    if (storage != nullptr) look(*storage);
  }
}

void manager_writer::state_owner::await_probes() {
  const round_time deadline = std::chrono::steady_clock::now() + probe_wait();
  for (const auto& storage : state_.storages) {
    if (storage != nullptr && storage->worker != nullptr) storage->worker->await_probe(deadline);
  }
  look_at_storages();
}

bool manager_writer::state_owner::is_probed() const {
  return std::ranges::all_of(state_.storages, [](const auto& storage) {
    return storage == nullptr || storage->worker == nullptr || storage->worker->is_probed();
  });
}

void manager_writer::state_owner::answer(std::unique_ptr<write_command> command, const result<>& committed,
                                         round_time now) {
  if (committed && command->has_new_worker()) {
    probe_waits_.emplace_back(now + probe_wait(), std::move(command));
  } else {
    command->answer(committed);
  }
}

void manager_writer::state_owner::end_probe_waits(round_time now) {
  if (probe_waits_.empty()) return;
  const bool is_over = is_probed();
  look_at_storages();
  for (; !probe_waits_.empty() && (is_over || probe_waits_.front().first <= now); probe_waits_.pop_front()) {
    probe_waits_.front().second->answer({});
  }
}

bool manager_writer::state_owner::run_round() {
  write_round round{.now = std::chrono::steady_clock::now()};
  has_more_ = false;
  note_uses(round.now);
  while (const auto extent = sessions_.expired(round.now)) expire_session(parts_, *extent);
  auto complete = queue_.advance(parts_, round);
  write_round spare{.now = round.now};
  if (round.now >= next_look_) {
    look(spare);
    next_look_ = round.now + look_pause;
  }
  has_more_ |= reclaimer_.run(changes_, spare);
  removals_.issue(changes_, round.now);
  const bool has_batch = !changes_.is_empty();
  if (has_batch) writer_.figures_.rounds.fetch_add(1, std::memory_order_relaxed);
  const auto begin = std::chrono::steady_clock::now();
  const auto committed = changes_.commit(round.now);
  if (has_batch) note_batch(std::chrono::steady_clock::now() - begin);
  if (!committed) log_warn(logger("manager"), "the journal has failed", {{"reason", committed.error().message()}});
  has_written_ = has_written_ || (has_batch && committed);
  if (committed && has_changed_) show_view();
  has_changed_ = false;
  for (auto& command : complete) answer(std::move(command), committed, round.now);
  end_probe_waits(round.now);
  show_figures();
  return committed.has_value();
}

void manager_writer::state_owner::note_batch(std::chrono::nanoseconds time) {
  manager_figures& figures = writer_.figures_;
  figures.journal_bytes.fetch_add(changes_.take_bytes(), std::memory_order_relaxed);
  figures.journal_times.add(static_cast<std::uint64_t>(time.count()));
}

void manager_writer::state_owner::show_figures() {
  writer_.figures_.sessions.store(sessions_.size(), std::memory_order_relaxed);
  writer_.figures_.waiting_removals.store(removals_.size(), std::memory_order_relaxed);
  writer_.figures_.lost_extents.store(removals_.lost_count(), std::memory_order_relaxed);
  writer_.figures_.evicted.store(reclaimer_.counts().sum(), std::memory_order_relaxed);
  for (std::size_t i = 0; i < evict_reasons.size(); ++i) {
    writer_.figures_.evicted_for[i].store(reclaimer_.counts().*evict_reasons[i].count, std::memory_order_relaxed);
  }
  writer_.figures_.orphaned.store(reclaimer_.counts().orphaned, std::memory_order_relaxed);
  const auto& plugins = *writer_.plugin_counters_;
  writer_.figures_.plugin_starts.store(plugins.starts.load(std::memory_order_relaxed), std::memory_order_relaxed);
  writer_.figures_.plugin_failures.store(plugins.failures.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

round_time manager_writer::state_owner::next_event() const {
  if (has_more_ || !queue_.empty()) return {};
  round_time next = probe_waits_.empty() ? next_look_ : std::chrono::steady_clock::now() + probe_pause;
  if (const auto due = removals_.next_due()) next = std::min(next, *due);
  if (const auto deadline = sessions_.next_deadline()) next = std::min(next, *deadline);
  return next;
}

manager_writer::manager_writer(writer_options options) : options_(std::move(options)), thread_([this] { run(); }) {}

void manager_writer::stop() noexcept {
  inbox_.close();
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
}

namespace {

/// The answer to commands that are not carried out. `node_restarting`: the manager is not ready; else the journal does
/// not answer.
struct command_refusal {
  error_code code;
  std::string_view reason;
};
constexpr command_refusal stopping{error_code::node_restarting, "the manager stops"};
constexpr command_refusal starting{error_code::node_restarting, "the manager reads its journal; ask again"};
constexpr command_refusal storeless{error_code::not_running, "the journal's store does not answer"};

void refuse_all(const std::vector<std::unique_ptr<write_command>>& commands, const command_refusal& reason) {
  for (const auto& command : commands) command->answer(fail(reason.code, std::string(reason.reason)));
}

}  // namespace

void manager_writer::post(std::unique_ptr<write_command> command) {
  const auto refused = inbox_.add(std::move(command));
  if (refused != nullptr) refused->answer(fail(stopping.code, std::string(stopping.reason)));
}

void manager_writer::warn_once(std::string reason) {
  if (reason == last_warning_) return;
  log_warn(logger("manager"), reason, {});
  last_warning_ = std::move(reason);
}

std::unique_ptr<manager_writer::state_owner> manager_writer::recover() {
  auto rows = options_.open_journal(stop_.get_token());
  if (!rows) {
    warn_once("the journal cannot be opened: " + rows.error().message());
    return nullptr;
  }
  const std::uint64_t incarnation = figures_.recoveries.fetch_add(1, std::memory_order_relaxed) + 1;
  auto owner = std::make_unique<state_owner>(*this, std::move(*rows), incarnation);
  const auto counts = owner->recover();
  if (!counts) {
    warn_once("the journal cannot be read: " + counts.error().message());
    return nullptr;
  }
  last_warning_.clear();
  figures_.damaged_rows.fetch_add(counts->damaged_rows, std::memory_order_relaxed);
  log_info(logger("manager"), "recovered",
           {{"extents", counts->extents},
            {"blocks", counts->blocks},
            {"damaged_rows", counts->damaged_rows},
            {"orphaned_rows", counts->orphaned_rows}});
  if (counts->damaged_rows != 0) {
    log_warn(logger("manager"), "rows of the journal are damaged; what lost extents have is deleted by its names",
             {{"damaged_rows", counts->damaged_rows}, {"lost_extents", counts->lost_extents}});
  }
  if (begin(*owner)) return owner;
  figures_.failed_rounds.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

/// Readers see the registry once it has begun: a client that finds the manager healthy finds its first group, too.
bool manager_writer::begin(state_owner& owner) {
  if (options_.bootstrap) {
    owner.add(std::make_unique<registry_command>(options_.bootstrap, [](const rpc_outcome<std::string>& outcome) {
      if (outcome) return;
      log_warn(logger("manager"), "the registry's begin is refused", {{"reason", outcome.error().message}});
    }));
  }
  while (owner.has_commands()) {
    if (!owner.run_round()) return false;
  }
  owner.await_probes();
  if (!pass(options_.faults.get(), fault_point::recovery_view)) return false;
  owner.show_view();
  return true;
}

void manager_writer::recover_when_due(std::unique_ptr<state_owner>& owner) {
  if (owner != nullptr || std::chrono::steady_clock::now() < next_recovery_) return;
  owner = recover();
  if (owner == nullptr) put_off_recovery();
}

/// A store that fails each time is not read each time that a client asks.
void manager_writer::put_off_recovery() {
  pause_ = std::clamp<std::chrono::milliseconds>(2 * pause_, first_pause, last_pause);
  next_recovery_ = std::chrono::steady_clock::now() + pause_;
}

void manager_writer::run() {
  std::unique_ptr<state_owner> owner;
  bool has_recovered = false;
  for (;;) {
    recover_when_due(owner);
    has_recovered = has_recovered || owner != nullptr;
    auto came = inbox_.take(owner == nullptr ? next_recovery_ : owner->next_event());
    if (came.is_stopping) {
      refuse_all(came.commands, stopping);
      if (owner != nullptr) refuse_all(owner->take_waiting(), stopping);
      return;
    }
    if (owner == nullptr) {
      refuse_all(came.commands, has_recovered ? storeless : starting);
      continue;
    }
    for (auto& command : came.commands) owner->add(std::move(command));
    for (const storage_news& news : came.news) owner->add(news);
    if (owner->run_round()) continue;
    figures_.failed_rounds.fetch_add(1, std::memory_order_relaxed);
    refuse_all(owner->take_waiting(), storeless);
    if (owner->has_written()) {
      pause_ = {};
    } else {
      put_off_recovery();
    }
    owner.reset();
    auto view = std::make_shared<served_view>(*views_.take());  // readers keep it until the next one is whole
    view->is_ready = false;
    views_.show(std::move(view));
  }
}

}  // namespace cenote::manager
