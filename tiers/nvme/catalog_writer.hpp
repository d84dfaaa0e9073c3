// The thread that writes a catalog, so that whoever decides never waits for RocksDB.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "tiers/nvme/catalog.hpp"
#include "tiers/nvme/pending_removals.hpp"
#include "tiers/nvme/removal_log.hpp"
#include "tiers/steps.hpp"

namespace cenote::nvme {

/// Whether changes were written to the catalog, and whether the removals among them are durable in any case: they are
/// when the log of removals has them, which is applied at the next start.
struct save_status {
  result<void> written;
  bool removals_hold = true;
};

/// Writes submissions in order; those that wait are written together. Removals that fail are kept in `pending` and in
/// the log, and tried again before each later write and every two seconds. The catalog and `pending` outlive the
/// writer.
class catalog_writer {
 public:
  /// Called on the writer's thread once for every write, with the tags of its submissions in their order: all of them
  /// were written, or none, and `status` says why. It may call submit(), but not stop().
  using callback = std::function<void(std::span<const std::uint64_t> tags, const save_status& status)>;

  /// `log`: takes removals that the catalog does not take; its file outlives the writer. Without one they are kept in
  /// `pending` alone. What the log held at the start is in `pending` already.
  /// `mark`: the catalog's sequence number is stored there, every two seconds while it grows and at the end.
  /// `on_exception`: called with exceptions on the writer's thread, those of `done` among them. The step is then
  /// repeated, so `done` may be called for a tag twice.
  catalog_writer(catalog& into, pending_removals& pending, std::optional<removal_log> log, callback done,
                 std::optional<sequence_mark> mark = {}, exception_callback on_exception = {});
  catalog_writer(const catalog_writer&) = delete;
  catalog_writer& operator=(const catalog_writer&) = delete;
  /// stop().
  ~catalog_writer();

  /// Queues changes; `tag` is passed to the callback. Thread-safe; waits for no write. After stop() it does nothing.
  void submit(std::vector<catalog_change> changes, std::uint64_t tag);
  /// Writes the spec after what was submitted before, without a callback. Thread-safe; waits for no write.
  void remember(const instance_spec& spec);
  /// Writes what waits, and ends the thread: no callback comes after it. One thread at a time; a second call does
  /// nothing.
  void stop();

 private:
  struct submission {
    std::vector<catalog_change> changes;
    std::uint64_t tag = 0;
  };

  [[nodiscard]] bool step();
  [[nodiscard]] bool take_waiting();
  [[nodiscard]] save_status write();
  void write_specs();
  [[nodiscard]] bool keep_removals();
  void settle(std::uint64_t version);
  void note_sequence();

  catalog& catalog_;
  pending_removals& pending_;
  callback done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<submission> waiting_;
  std::vector<instance_spec> specs_;
  bool stopping_ = false;
  // The thread's own: what it writes now, and whose it is.
  std::optional<removal_log> log_;
  std::optional<sequence_mark> mark_;
  std::uint64_t marked_ = 0;  ///< the sequence that is in the mark
  std::chrono::steady_clock::time_point marked_at_{};
  bool logged_;                                  ///< the log may hold a set
  std::optional<std::uint64_t> logged_version_;  ///< of what is pending
  bool failing_;                                 ///< the last write did
  bool first_look_ = true;
  std::vector<catalog_change> changes_;
  std::vector<std::uint64_t> tags_;
  std::vector<instance_spec> specs_now_;
  std::vector<instance_spec> specs_owed_;  ///< could not be written
  std::thread thread_;
};

}  // namespace cenote::nvme
