// The backend on Redis or Valkey servers: one thread, three connections a server, values by rendezvous hashing.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/unique_fd.hpp"
#include "tiers/remote/backend.hpp"
#include "tiers/remote/epoch_book.hpp"
#include "tiers/remote/redis_servers.hpp"
#include "tiers/remote/removal_book.hpp"

namespace cenote::remote {

/// Servers that evict by themselves. A block lies on the server that rendezvous hashing gives it; a server that is away
/// makes its blocks unreachable, and the backend stands while one server answers. Questions, gets and puts have a
/// connection each to every server, so that a question does not wait behind values.
///
/// Copies of a value's bytes in user space: none for a put (from the block into the socket) and none for a get (from
/// the socket into the block), but for what comes in one piece with the reply before it, at most 64 KiB. Each is hashed
/// once: a put when its hash did not come with it, a get always.
///
/// The epochs' file is written (synced) on the backend's thread: at a clear, and when a server has another epoch.
class redis_backend final : public backend {
 public:
  /// Starts the thread. Errors: `invalid_argument`, `permission_denied` and `system` for the file with the password and
  /// for the folder. A server that does not answer is none: that is told as the standing.
  /// `removals`: those of earlier processes that a server has not confirmed.
  [[nodiscard]] static result<std::unique_ptr<redis_backend>> open(const redis_options& options, events told,
                                                                   removal_book removals = {});
  redis_backend(const redis_backend&) = delete;
  redis_backend& operator=(const redis_backend&) = delete;
  ~redis_backend() override;

  void look_for_clear(instance_identity identity) override;
  void unbind(instance_identity identity) override;
  void clear_above_ended(instance_identity identity, const result<void>& outcome) override;
  void put(std::vector<item> batch) override;
  void get(std::vector<item> batch) override;
  void locate(std::vector<block_name> keys, std::chrono::milliseconds patience,
              std::function<void(presence)> answer) override;
  /// Pending while a server has not confirmed it: none of its keys is found here until it has, and it is asked for
  /// again when that server is back and every 10 s.
  void drop(instance_identity identity, std::vector<block_key> keys,
            std::function<void(result<std::uint64_t>)> answer) override;
  /// A clear that a server did not hear of in time is answered `removal_pending`; it is carried out before anything of
  /// the instance is asked there again, also by the node's next process.
  void clear(instance_identity identity, std::function<void(result<void>)> answer) override;
  void clear_all(std::vector<instance_identity> identities, std::function<void(result<void>)> answer) override;
  void count_unconfirmed(instance_identity identity, std::function<void(unconfirmed_removals)> answer) override;
  [[nodiscard]] removal_figures removals() const override;
  void stop() noexcept override;
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

  /// Thread-safe.
  [[nodiscard]] redis_counts counts() const;

 private:
  using call = std::function<void(steady_time)>;  ///< one that throws is made once more

  redis_backend(const redis_options& options, events told, std::deque<epoch_book> books, removal_book removals,
                unique_fd wake);
  void enter(call what);
  void wake() noexcept;
  void run();
  [[nodiscard]] bool turn();
  void make_calls(steady_time now);
  void publish_figures();
  void wait(steady_time now);
  void enter_clear(std::vector<instance_identity> identities, bool with_known,
                   std::function<void(result<void>)> answer);

  const std::string name_;
  const events told_;
  unique_fd wake_;

  std::mutex mutex_;
  std::deque<call> inbox_;    // guarded by mutex_
  bool is_stopping_ = false;  // guarded by mutex_
  mutable std::mutex counts_mutex_;
  redis_counts counts_;      // guarded by counts_mutex_
  removal_figures figures_;  // guarded by counts_mutex_

  // The thread's own.
  std::deque<call> calls_;   ///< taken from inbox_, and not made
  bool is_at_work_ = false;  ///< when a turn begins: an exception ended the one before
  redis_servers servers_;
  std::vector<pollfd> polled_;
  std::thread thread_;
};

}  // namespace cenote::remote
