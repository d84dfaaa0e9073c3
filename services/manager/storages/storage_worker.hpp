// A thread for each storage, so that one that hangs delays none of the others.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "services/manager/storages/storage_backend.hpp"
#include "services/manager/storages/storage_health.hpp"

namespace cenote::manager {

/// Deletions that end together. One of a folder is alone in its batch.
struct removal_batch {
  std::uint64_t number = 0;  ///< the caller's
  std::vector<removal_item> items{};
};

/// The outcome of a batch: item by item, empty where it was deleted.
struct removal_outcome {
  std::uint64_t number = 0;
  std::vector<std::string> failures{};
};

struct storage_worker_options {
  std::chrono::milliseconds probe_interval{1'000};
  std::chrono::milliseconds probe_timeout{2'000};
};

/// Runs a storage's deletions and probes. Thread-safe. When it is destroyed while the storage hangs, its thread is left
/// to itself: it ends when the storage answers.
class storage_worker {
 public:
  using outcome_receiver = std::function<void(removal_outcome)>;

  /// `receive` is called on the worker's thread, as long as this object lives.
  storage_worker(std::unique_ptr<storage_backend> backend, storage_worker_options options, outcome_receiver receive);
  storage_worker(const storage_worker&) = delete;
  storage_worker& operator=(const storage_worker&) = delete;
  ~storage_worker();

  void remove(removal_batch batch);
  /// Takes no more work and delivers nothing; the thread ends by itself.
  void stop() noexcept;
  [[nodiscard]] bool has_ended() const;
  /// Waits until the first probe has ended, at most until the deadline.
  void await_probe(storage_health::time_point deadline) const;
  /// Whether a probe has ended, or the storage hangs.
  [[nodiscard]] bool is_probed();
  /// The condition by the probes so far; a probe that hangs counts from now on.
  [[nodiscard]] storage_condition condition();
  /// Bytes free at the last probe that worked.
  [[nodiscard]] std::uint64_t free_bytes() const noexcept;
  /// The text of the last failure; empty: the last probe worked.
  [[nodiscard]] std::string last_failure() const;

 private:
  struct shared_state;
  static void run(const std::shared_ptr<shared_state>& state);

  std::shared_ptr<shared_state> state_;
  std::thread thread_;
};

}  // namespace cenote::manager
