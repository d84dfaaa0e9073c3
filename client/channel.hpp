// The client's end of the rings: batches go out, answers come back to whoever waits for them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/connection.hpp"
#include "client/deadline_mutex.hpp"
#include "client/fork_guard.hpp"
#include "client/grant_pool.hpp"
#include "client/spin_habit.hpp"
#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "memory/session_memory.hpp"

namespace cenote::client {

/// One batch under way.
struct request {
  std::uint32_t number = 0;
  std::uint64_t parts = 0;  ///< of a reserve: the parts asked for
  bool reserves = false;
  bool done = false;
  bool abandoned = false;                   ///< nobody waits any more; what it still brings goes back
  memory::completion outcome;               ///< the `done` completion
  std::vector<memory::completion> answers;  ///< one a key, for `reserve`; one a piece of a key, for `follow`
  std::string text;                         ///< why it was refused, if the node says so
  std::uint64_t tag = 0;                    ///< the caller's
  time_point until{};                       ///< the caller's
};
using request_ptr = std::shared_ptr<request>;

/// Thread-safe. Of the threads that wait, one reaps the completion ring for all; it spins a moment, then sleeps on the
/// doorbell and on the socket. When the worker's end of the socket is gone it introduces the session to the next
/// worker; requests in flight stay in the ring, which survives.
class channel {
 public:
  static constexpr std::size_t max_batch = 512;

  /// `held` is what this client may be writing beside its grants, which session memory shows; a re-attach tells the new
  /// worker. Blocks that answers reserve are added to it as they arrive. `check_interval`: how often a waiting call
  /// looks whether the session was killed or closed, for which nothing wakes it.
  channel(memory::session_memory memory, unique_fd submit_bell, unique_fd complete_bell, connection& socket,
          reservations& held, std::chrono::milliseconds check_interval);

  /// Why no call is possible (any more): forked, closed, killed, draining, the device of its blocks failed. A few loads
  /// when all is well.
  [[nodiscard]] result<void> check() const;

  /// After bytes of blocks were read: `closed` if a node without knowledge of our pins took over meanwhile, or the
  /// device that they lie on failed, so that they may be anything.
  [[nodiscard]] result<void> still_valid() const;

  /// Pushes a batch of 1 to max_batch entries; sets request numbers, positions and the last flag. A batch of `reserve`
  /// brings an answer for each entry.
  result<request_ptr> submit(std::span<memory::submission> batch, time_point until);

  /// As submit(), but each entry is a request of its own: one word to the worker, as many answers as entries.
  result<std::vector<request_ptr>> submit_each(std::span<memory::submission> entries, time_point until);

  /// Waits for the end of a batch. On a failure the request is abandoned.
  result<memory::completion> wait(request& which, time_point until);

  /// As wait(), but a request that is not done by then goes on; nothing then. A worker that was replaced never answers
  /// a prefetch: epoch() tells.
  result<std::optional<memory::completion>> watch(request& which, time_point until);
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_.load(std::memory_order_relaxed); }
  /// Waits until one of `open` is done, or `until`. Fails when the session is over.
  result<void> watch_any(std::span<const request_ptr> open, time_point until);
  /// Takes those that are done out of `open`, `most` at most, oldest first; they are forgotten as after wait(). No
  /// system call.
  [[nodiscard]] std::vector<request_ptr> take_done(std::vector<request_ptr>& open, std::size_t most);
  /// Nobody waits for it any more.
  void forget(request& which);

  /// Pushes a batch whose outcome nobody wants to know.
  result<void> post(std::span<memory::submission> batch, time_point until);

  /// Releases that could not be sent: they go before the next batch. Their blocks are written no more.
  void release_later(std::span<const memory::submission> releases);

  /// A request of one entry that post() could not send: it goes before the next batch. It ends something that was
  /// submitted: since nothing is submitted before the words that wait, these are no more than what can be open.
  void post_later(const memory::submission& word);

  /// The end of a batch if it came already; then the batch is forgotten as after wait().
  [[nodiscard]] std::optional<memory::completion> poll(request& which);

  /// submit and wait; the outcome's code is turned into a failure by the caller.
  result<memory::completion> call(std::span<memory::submission> batch, time_point until);

  /// Pushes touch records if there is room, else counts them as dropped. Rings only when the ring is half full.
  void touch(std::span<memory::submission> batch) noexcept;

  /// Introduces the session to a new worker if the present one is gone; `closed`, `not_running` and so on otherwise.
  result<void> recover(time_point until);

  /// From now on every call fails with `closed`; waiting ones soon do.
  void stop() noexcept;

  [[nodiscard]] std::uint64_t reattaches() const noexcept { return reattaches_.load(std::memory_order_relaxed); }

 private:
  result<void> wait_for_room(std::unique_lock<std::mutex>& lock, std::size_t places, time_point until);
  result<void> look_for_room(time_point& look_at_socket, time_point until);
  bool has_room(std::size_t places);
  void send_late_words();
  void send_orphans();
  void abandon(request& which);
  using ready_test = std::function<bool()>;  ///< called with mutex_ held

  result<void> prepare_to_submit(time_point until);
  request_ptr make_request();
  void wait_until_ready(std::unique_lock<std::mutex>& lock, const ready_test& is_ready, time_point until,
                        result<void>& status);
  [[nodiscard]] bool epoch_changed() const noexcept;
  void reap(const ready_test& is_ready, time_point until, result<void>& status);
  bool spin();
  [[nodiscard]] bool is_so(const ready_test& is_ready);
  result<void> sleep(const ready_test& is_ready, time_point until);
  bool drain();
  void deliver(const memory::completion& entry);
  [[nodiscard]] held_list list_held();
  void orphan(const memory::completion& entry, std::uint64_t parts);
  void end(const error& why);
  void ring() const noexcept;
  [[nodiscard]] error late() const;
  [[nodiscard]] int poll_timeout(time_point deadline) const;

  memory::session_memory memory_;
  unique_fd submit_bell_;
  unique_fd complete_bell_;
  connection* socket_;
  reservations* held_;
  std::chrono::milliseconds check_interval_;
  fork_guard process_;

  std::mutex submit_mutex_;     ///< the submission half of rings_; nobody waits with it
  memory::client_rings rings_;  ///< the completion half under mutex_; arm and disarm by the reaping thread
  std::size_t want_room_ = 0;   ///< threads that wait for room, under submit_mutex_: who comes later stands behind them
  deadline_mutex room_turn_;    ///< of those, the one that looks
  std::uint32_t next_request_ = 1;

  std::mutex mutex_;  ///< all below but the atomics
  std::condition_variable arrived_;
  std::unordered_map<std::uint32_t, request_ptr> requests_;
  std::vector<memory::submission> orphans_;     ///< releases of reservations that nobody waited for
  std::vector<memory::submission> late_words_;  ///< of post_later()
  bool reaping_ = false;
  spin_habit spins_;  ///< of the thread that reaps

  mutable std::mutex end_mutex_;
  std::optional<error> ended_;
  std::atomic<bool> has_ended_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> away_{false};  ///< the worker was gone when we last looked
  deadline_mutex recover_mutex_;
  std::atomic<std::uint64_t> epoch_;
  std::atomic<std::uint64_t> reattaches_{0};
};

}  // namespace cenote::client
