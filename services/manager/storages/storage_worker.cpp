#include "services/manager/storages/storage_worker.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

namespace cenote::manager {

namespace {

using namespace std::chrono_literals;
using time_point = storage_health::time_point;

constexpr std::uint64_t least_free_part = 20;  ///< below one of so many parts free, nothing new is written
constexpr auto stop_limit = 500ms;

}  // namespace

// The thread shares it with the worker, as it may outlive that one.
struct storage_worker::shared_state {
  shared_state(std::unique_ptr<storage_backend> storage, storage_worker_options settings, outcome_receiver receiver)
      : backend(std::move(storage)), options(settings), receive(std::move(receiver)), health(settings.probe_timeout) {}

  [[nodiscard]] std::optional<removal_batch> next_batch();
  void remove(const removal_batch& batch);
  /// Errors: those of the storage; closed: it is stopped.
  [[nodiscard]] result<> remove_folder(const std::string& place);
  /// The storage has answered. False: it is stopped.
  [[nodiscard]] bool note_answer();
  void probe();
  void deliver(removal_outcome outcome);

  const std::unique_ptr<storage_backend> backend;
  const storage_worker_options options;
  std::mutex receiver_mutex;  ///< of `receive`, which goes with the worker
  outcome_receiver receive;
  std::atomic<std::uint64_t> free_bytes{0};

  std::mutex mutex;  ///< of what stands below
  std::condition_variable wake;
  std::condition_variable end_signal;
  std::condition_variable probe_signal;
  std::deque<removal_batch> waiting;
  storage_health health;
  std::optional<time_point> operation_begin;
  std::string last_failure;
  time_point next_probe{};
  bool has_probe = false;  ///< one has ended
  bool is_stopping = false;
  bool has_ended = false;
};

std::optional<removal_batch> storage_worker::shared_state::next_batch() {
  std::unique_lock lock(mutex);
  wake.wait_until(lock, next_probe, [this] { return is_stopping || !waiting.empty(); });
  if (is_stopping) return std::nullopt;
  operation_begin = std::chrono::steady_clock::now();
  if (waiting.empty() || *operation_begin >= next_probe) return removal_batch{};
  removal_batch batch = std::move(waiting.front());
  waiting.pop_front();
  return batch;
}

void storage_worker::shared_state::deliver(removal_outcome outcome) {
  const std::lock_guard lock(receiver_mutex);
  if (receive) receive(std::move(outcome));
}

bool storage_worker::shared_state::note_answer() {
  const std::lock_guard lock(mutex);
  operation_begin = std::chrono::steady_clock::now();
  return !is_stopping;
}

result<> storage_worker::shared_state::remove_folder(const std::string& place) {
  for (;;) {
    const auto has_more = backend->remove_some(place);
    if (!has_more) return std::unexpected(has_more.error());
    if (!*has_more) return {};
    if (!note_answer()) return fail(error_code::closed, "the storage is stopped");
  }
}

void storage_worker::shared_state::remove(const removal_batch& batch) {
  removal_outcome outcome{.number = batch.number};
  outcome.failures.reserve(batch.items.size());
  for (std::span<const removal_item> rest = batch.items; !rest.empty();) {
    const auto items = rest.first(std::min(rest.size(), backend->most_items()));
    rest = rest.subspan(items.size());
    const bool is_folder = items.front().scope == removal_scope::folder;
    for (const auto& removed :
         is_folder ? std::vector{remove_folder(items.front().place)} : backend->remove_together(items)) {
      outcome.failures.push_back(removed ? std::string() : removed.error().describe());
    }
    if (!note_answer()) return;
  }
  deliver(std::move(outcome));
}

void storage_worker::shared_state::probe() {
  const auto room = backend->probe();
  if (room) free_bytes.store(room->free_bytes, std::memory_order_relaxed);
  const std::lock_guard lock(mutex);
  if (room) {
    health.note_success(room->total_bytes == 0 || room->free_bytes >= room->total_bytes / least_free_part);
    last_failure.clear();
  } else {
    health.note_failure();
    last_failure = room.error().describe();
  }
  has_probe = true;
  probe_signal.notify_all();
  next_probe = std::chrono::steady_clock::now() + options.probe_interval;
}

void storage_worker::run(const std::shared_ptr<shared_state>& state) {
  while (const auto batch = state->next_batch()) {
    if (batch->items.empty()) {
      state->probe();
    } else {
      state->remove(*batch);
    }
    const std::lock_guard lock(state->mutex);
    state->operation_begin.reset();
  }
  const std::lock_guard lock(state->mutex);
  state->has_ended = true;
  state->end_signal.notify_all();
}

storage_worker::storage_worker(std::unique_ptr<storage_backend> backend, storage_worker_options options,
                               outcome_receiver receive)
    : state_(std::make_shared<shared_state>(std::move(backend), options, std::move(receive))),
      thread_([state = state_] { run(state); }) {}

void storage_worker::stop() noexcept {
  {
    const std::lock_guard lock(state_->receiver_mutex);
    state_->receive = nullptr;
  }
  state_->backend->cancel();
  const std::lock_guard lock(state_->mutex);
  state_->is_stopping = true;
  state_->wake.notify_all();
}

bool storage_worker::has_ended() const {
  const std::lock_guard lock(state_->mutex);
  return state_->has_ended;
}

storage_worker::~storage_worker() {
  stop();
  std::unique_lock lock(state_->mutex);
  const bool has_ended = state_->end_signal.wait_for(lock, stop_limit, [this] { return state_->has_ended; });
  lock.unlock();
  if (has_ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void storage_worker::remove(removal_batch batch) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(std::move(batch));
  state_->wake.notify_all();
}

void storage_worker::await_probe(storage_health::time_point deadline) const {
  std::unique_lock lock(state_->mutex);
  state_->probe_signal.wait_until(lock, deadline, [this] { return state_->has_probe; });
}

bool storage_worker::is_probed() {
  const bool hangs = condition() == storage_condition::unhealthy;
  const std::lock_guard lock(state_->mutex);
  return hangs || state_->has_probe;
}

storage_condition storage_worker::condition() {
  const std::lock_guard lock(state_->mutex);
  if (state_->operation_begin) state_->health.note_running(*state_->operation_begin, std::chrono::steady_clock::now());
  return state_->health.condition();
}

std::uint64_t storage_worker::free_bytes() const noexcept {
  return state_->free_bytes.load(std::memory_order_relaxed);
}

std::string storage_worker::last_failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->last_failure;
}

}  // namespace cenote::manager
