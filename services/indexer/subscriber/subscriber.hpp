// Follows all publishers on one thread: what they publish reaches a sink in order, with gaps, restarts and losses
// decided.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "services/indexer/subscriber/batch_sink.hpp"
#include "services/indexer/subscriber/publisher_options.hpp"
#include "services/indexer/subscriber/publisher_table.hpp"
#include "services/indexer/subscriber/subscriber_options.hpp"

namespace cenote::indexer {

class publisher_loop;

/// One thread of its own and two of the library. All methods are thread-safe, but stop() is called by one
/// thread at a time, and not by the sink.
class subscriber {
 public:
  /// Binds the endpoints and begins. The sink outlives it, and no call of it comes before this returns or after stop().
  /// Errors: invalid_argument (an option), limit_exceeded (sockets, descriptors), system (a port is taken).
  [[nodiscard]] static result<std::unique_ptr<subscriber>> start(const subscriber_options& options, batch_sink& sink);
  subscriber(const subscriber&) = delete;
  subscriber& operator=(const subscriber&) = delete;
  ~subscriber();

  /// Connects to a publisher, soon. Errors: invalid_argument: a setting, or there is one of that name already;
  /// limit_exceeded: too many publishers, or calls that wait; closed.
  [[nodiscard]] result<void> add(const publisher_options& settings);
  /// Closes one that was added, soon, and its blocks go. Errors: invalid_argument: there is none; limit_exceeded;
  /// closed.
  [[nodiscard]] result<void> remove(std::string_view name);
  /// As of a moment ago; never null. The first one is empty.
  [[nodiscard]] std::shared_ptr<const publisher_table> publishers() const;
  /// Publishers that were added and not removed; the table has them a moment later.
  [[nodiscard]] std::size_t configured() const;
  /// As they are bound: each of `bind` with its ranks, ports in the place of `*`.
  [[nodiscard]] const std::vector<std::string>& bound_endpoints() const noexcept { return bound_endpoints_; }
  /// Has the sink's advance() called soon.
  void wake() const noexcept { signal(); }
  /// Ends the thread and all sockets behind the batch that is applied now. Nothing is closed in the sink.
  void stop() noexcept;

 private:
  /// A call of add() or, without settings, remove().
  struct publisher_change {
    std::string name;
    std::unique_ptr<publisher_options> settings;
  };

  subscriber(const subscriber_options& options, unique_fd wake);
  void run(std::unique_ptr<publisher_loop> loop);
  void carry_out(publisher_loop& loop);
  void publish(const publisher_loop& loop);
  [[nodiscard]] result<void> enqueue(publisher_change change);
  void signal() const noexcept;

  subscriber_options options_;
  unique_fd wake_;
  std::vector<std::string> bound_endpoints_;
  mutable std::mutex mutex_;  ///< of what stands below
  std::vector<publisher_change> changes_;
  std::map<std::string, publisher_options, std::less<>> settings_;  ///< of those that were added
  std::shared_ptr<const publisher_table> table_ = std::make_shared<publisher_table>();
  std::atomic<bool> is_stopping_{false};
  feed_time next_table_{}, next_idle_table_{};  ///< the thread's
  std::uint64_t table_turns_ = 0;               ///< of the loop, when the table was made
  std::thread thread_;
};

}  // namespace cenote::indexer
