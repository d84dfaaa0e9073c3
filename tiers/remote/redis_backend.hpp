// The backend on Redis or Valkey servers: one thread, three connections a server, values by rendezvous hashing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cluster/recent_removals.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/unique_fd.hpp"
#include "tiers/remote/backend.hpp"
#include "tiers/remote/epoch_book.hpp"
#include "tiers/remote/redis_answers.hpp"
#include "tiers/remote/redis_lane.hpp"
#include "tiers/remote/redis_site.hpp"
#include "tiers/remote/redis_url.hpp"
#include "tiers/remote/removal_book.hpp"

namespace cenote::remote {

struct redis_options {
  redis_url url;
  std::filesystem::path credentials;  ///< file with `password` or `user:password`; empty: none. Read at each connection
  std::filesystem::path state;        ///< folder of this node's own, for the epochs; made if not there
  std::chrono::milliseconds timeout{2000};
  std::size_t open_bytes = std::size_t{512} << 20U;  ///< of blocks in puts and gets; more is `refused`
  std::size_t open_keys = std::size_t{1} << 18U;     ///< of questions; more is answered as not known
  std::chrono::milliseconds first_back_off{1000};
  std::chrono::milliseconds last_back_off{30000};
  std::chrono::milliseconds ping_every{2000};
  name_lookup lookup = look_up;
};

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
  [[nodiscard]] static result<std::unique_ptr<redis_backend>> open(redis_options options, events told,
                                                                   removal_book removals = {});
  redis_backend(const redis_backend&) = delete;
  redis_backend& operator=(const redis_backend&) = delete;
  ~redis_backend() override;

  void look_for_clear(instance_identity identity) override;
  void clear_above_ended(instance_identity identity, const result<void>& outcome) override;
  void put(std::vector<item> batch) override;
  void get(std::vector<item> batch) override;
  void locate(std::vector<block_name> keys, std::chrono::milliseconds patience,
              std::function<void(presence)> answer) override;
  /// A removal that a server did not confirm is kept, none of its keys is found here until it is, and it is asked for
  /// again when a server is back and every 10 s.
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
  enum lane_number : std::size_t { questions, gets, puts, lanes_a_server };
  struct server {
    server(redis_address address, const redis_settings& settings, epoch_book& book, redis_answers& answers,
           std::function<void()> wake, name_lookup lookup);
    redis_site site;
    std::array<redis_lane, lanes_a_server> lanes;
  };
  using drop_receiver = std::function<void(const result<std::uint64_t>&, const std::set<std::size_t>& silent)>;
  using call = std::function<void(steady_time)>;  ///< one that throws is made once more

  redis_backend(redis_options options, events told, std::deque<epoch_book> books, removal_book removals,
                unique_fd wake);
  void enter(call what);
  void wake() noexcept;
  void run();
  [[nodiscard]] bool turn();
  void make_calls(steady_time now);
  void wait(steady_time now);
  void say_standing();
  void end_all(steady_time now);
  void end_lost(steady_time now);

  void begin_items(request_kind kind, std::vector<item>& batch, steady_time begun, steady_time now);
  void begin_question(const redis_request& like, const std::vector<block_key>& keys, steady_time now);
  [[nodiscard]] std::vector<block_key> end_puts(instance_identity identity, std::vector<block_key> keys,
                                                steady_time now);
  void begin_drop(instance_identity identity, const std::vector<block_key>& keys, steady_time call_time,
                  drop_receiver answer);
  void keep_removal(instance_identity identity, std::vector<block_key> keys, const std::set<std::size_t>& silent);
  void end_repeat(std::uint64_t number, const result<std::uint64_t>& outcome, const std::set<std::size_t>& silent);
  [[nodiscard]] std::set<std::string> names_of(const std::set<std::size_t>& servers) const;
  [[nodiscard]] removal_figures count_removals();
  void repeat_removals(steady_time now);
  void save_removals(steady_time now);
  void look_everywhere(instance_identity identity);
  void ask_for_clears(steady_time now);
  void end_clear_above(instance_identity identity, const result<void>& outcome, steady_time now);
  void enter_clear(std::vector<instance_identity> identities, bool with_known,
                   std::function<void(result<void>)> answer);
  void begin_clear(const std::vector<instance_identity>& identities, bool with_known,
                   const std::shared_ptr<redis_question>& asked, steady_time begun, steady_time now);
  [[nodiscard]] server& home(const redis_request& request);

  const redis_options options_;
  const redis_settings settings_;
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
  std::deque<call> calls_;        ///< taken from inbox_, and not made
  bool is_at_work_ = false;       ///< when a turn begins: an exception ended the one before
  std::deque<epoch_book> books_;  ///< one a server
  redis_answers answers_;
  std::deque<server> servers_;
  std::vector<std::uint64_t> seeds_;
  /// Instances that this node's own tiers are asked to clear. True: another clear was found since they were.
  std::map<instance_identity, bool> clears_asked_;
  removal_book removals_;              ///< that a server has not confirmed
  cluster::recent_removals unserved_;  ///< their keys
  std::set<std::uint64_t> repeated_;   ///< numbers of those that are asked for again now
  steady_time repeats_at_{};
  steady_time saves_at_{};                        ///< after a write of the book that failed
  std::uint64_t repeats_ = 0, failed_saves_ = 0;  ///< of removals, so far
  std::optional<bool> stands_;
  std::string said_reason_;  ///< why it does not stand, as it was said
  std::thread thread_;
};

}  // namespace cenote::remote
