// The thread that writes a catalog, so that whoever decides never waits for RocksDB.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "tiers/nvme/catalog.hpp"

namespace cenote::nvme {

/// Carries out submissions in order; those that wait go together, in one write. The catalog outlives the writer.
class catalog_writer {
 public:
  /// Called on the writer's thread once for every write, with the tags of its submissions in their order: all of them
  /// were written, or none, and `status` says why. It may call submit(), but not stop().
  using callback = std::function<void(std::span<const std::uint64_t> tags, const result<void>& status)>;

  catalog_writer(catalog& into, callback done);
  catalog_writer(const catalog_writer&) = delete;
  catalog_writer& operator=(const catalog_writer&) = delete;
  /// stop().
  ~catalog_writer();

  /// `tag` comes back with the callback. Thread-safe; waits for no write. After stop() it does nothing, and no callback
  /// comes.
  void submit(std::vector<catalog_change> changes, std::uint64_t tag);
  /// Writes the spec down after what was submitted before; nobody hears of it. Thread-safe; waits for no write.
  void remember(const instance_spec& spec);
  /// Writes what waits, and returns when no callback comes any more. One thread at a time; again is nothing.
  void stop();

 private:
  struct submission {
    std::vector<catalog_change> changes;
    std::uint64_t tag = 0;
  };

  void run();
  [[nodiscard]] bool take_waiting();

  catalog& catalog_;
  callback done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<submission> waiting_;
  std::vector<instance_spec> specs_;
  bool stopping_ = false;
  std::vector<catalog_change> changes_;  ///< the thread's own: what it writes now, and whose it is
  std::vector<std::uint64_t> tags_;
  std::vector<instance_spec> specs_now_;
  std::thread thread_;
};

}  // namespace cenote::nvme
