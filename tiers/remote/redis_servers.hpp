// Decisions of the Redis backend: which connection of which server has each request, and which removals and clears are
// under way.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cluster/recent_removals.hpp"
#include "core/calendar_clock.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "tiers/remote/backend.hpp"
#include "tiers/remote/epoch_book.hpp"
#include "tiers/remote/kept_removals.hpp"
#include "tiers/remote/redis_answers.hpp"
#include "tiers/remote/redis_lane.hpp"
#include "tiers/remote/redis_site.hpp"
#include "tiers/remote/removal_book.hpp"
#include "tiers/remote/removals.hpp"
#include "transport/redis/server_url.hpp"

namespace cenote::remote {

struct redis_options {
  redis::server_url url;
  std::filesystem::path credentials;  ///< file with `password` or `user:password`; empty: none. Read at each connection
  std::filesystem::path state;        ///< folder of this node's own, for the epochs; made if not there
  std::chrono::milliseconds timeout{2000};
  std::size_t open_bytes = std::size_t{512} << 20U;  ///< of blocks in puts and gets; more is `refused`
  std::size_t open_keys = std::size_t{1} << 18U;     ///< of questions; more is answered as not known
  std::chrono::milliseconds first_back_off{1000};
  std::chrono::milliseconds last_back_off{30000};
  std::chrono::milliseconds ping_every{2000};
  name_lookup lookup = look_up;
  std::function<std::uint64_t()> calendar = calendar_ns;  ///< nanoseconds since 1970
};

/// The files of the epochs, one a server: they are the same for backends that name the same server, database and
/// prefix, which cannot both have it open.
[[nodiscard]] std::vector<std::filesystem::path> epoch_files(const redis_options& options);

/// Reads the books of epochs of all servers. Errors: as epoch_book::open(), `system` for the folder.
[[nodiscard]] result<std::deque<epoch_book>> open_epoch_books(const redis_options& options);

/// Three connections a server: for questions, gets and puts. Not thread-safe; the time is an argument. Answers are
/// given by deliver() and answer_removals() alone.
class redis_servers {
 public:
  /// `wake`: an address was looked up, on another thread.
  redis_servers(const redis_options& options, const backend::events& events, std::deque<epoch_book> books,
                removal_book book, const std::function<void()>& wake, steady_time now);
  ~redis_servers() = default;
  redis_servers(const redis_servers&) = delete;
  redis_servers& operator=(const redis_servers&) = delete;
  redis_servers(redis_servers&&) = delete;
  redis_servers& operator=(redis_servers&&) = delete;

  // As the calls of the backend; `call_time`: when they were made.
  void begin_items(request_kind kind, std::vector<item>& batch, steady_time call_time, steady_time now);
  void locate(const std::vector<block_name>& keys, std::function<void(presence)> answer, steady_time call_time,
              steady_time deadline, steady_time now);
  void drop(instance_identity identity, std::vector<block_key> keys, std::function<void(result<std::uint64_t>)> answer,
            steady_time call_time, steady_time now);
  /// `with_known`: also what this node knows to have been there.
  void clear(const std::vector<instance_identity>& identities, bool with_known,
             std::function<void(result<void>)> answer, steady_time call_time, steady_time now);
  void look_for_clear(instance_identity identity);
  /// The instance is in use here no more.
  void end_stamps(instance_identity identity);
  void end_clear_above(instance_identity identity, const result<void>& outcome, steady_time now);
  [[nodiscard]] unconfirmed_removals count_unconfirmed(instance_identity identity);

  /// Has this node's own tiers clear what another node has cleared: once for what all connections to all servers find.
  void ask_for_clears(steady_time now);
  /// Repeats removals, connects, ends what is late, sends what waits.
  void turn(steady_time now);
  /// Gives the answers that there are, but of removals, saves removals, reports what stands.
  void deliver(steady_time now);
  /// Gives the answers to removals: after the figures were published.
  void answer_removals() { removals_.give_answers(); }
  /// Descriptors to poll, in an order that serve() goes by.
  void watch(std::vector<pollfd>& polled) const;
  void serve(std::span<const pollfd> polled, steady_time now);
  /// When turn() has something to do without an event.
  [[nodiscard]] steady_time next_turn() const;
  /// An exception ended a turn: what it left of its requests is not known. All connections are made anew, and all is
  /// answered.
  void end_lost(steady_time now);
  /// Answers all that is open, and closes.
  void stop(steady_time now);

  [[nodiscard]] const redis_counts& counts() const noexcept { return answers_.counts; }
  [[nodiscard]] removal_figures figures();

 private:
  enum lane_number : std::size_t { questions, gets, puts, lanes_a_server };
  struct server {
    server(redis::server_address address, const redis_settings& settings, epoch_book& book, redis_answers& answers,
           std::function<void()> wake, name_lookup lookup);
    [[nodiscard]] bool has_all_lanes() const noexcept;

    redis_site site;
    std::array<redis_lane, lanes_a_server> lanes;
    bool is_up = false;                       ///< as of the last report
    bool is_greeted = false;                  ///< since it has all its connections
    std::string run{};                        ///< of its process, then
    bool has_forgotten = false;               ///< what it had confirmed is to be removed there once more
    std::size_t open_repeats = 0;             ///< instances of that which it has not answered
    steady_time repeats_at{};                 ///< not before
    steady_time looked_at{};                  ///< for removals of others
    std::set<instance_identity> put_since{};  ///< instances of which something was put since
  };

  void begin_question(const redis_request& pattern, const std::vector<block_key>& keys, steady_time now);
  [[nodiscard]] std::vector<block_key> end_puts(instance_identity identity, std::vector<block_key> keys,
                                                steady_time now);
  void begin_removal(removals::round round, steady_time call_time, steady_time now);
  void begin_drop(const instance_identity& identity, const std::vector<block_key>& keys,
                  std::shared_ptr<redis_question> question, steady_time call_time, steady_time now);
  void end_removal(std::uint64_t number, const result<std::uint64_t>& outcome, const std::set<std::size_t>& silent);
  void keep_clear(const instance_identity& identity);
  void repeat_removals(steady_time now);
  void repeat_kept(std::size_t number, steady_time now);
  void end_repeat(std::size_t number, bool is_confirmed);
  void watch_removals(std::size_t number, steady_time now);
  [[nodiscard]] std::set<std::string> names_of(const std::set<std::size_t>& numbers) const;
  [[nodiscard]] bool is_useful(const removal_book::open_removal& order) const;
  void say_standing(steady_time now);
  [[nodiscard]] server& home(const redis_request& request);

  const redis_settings settings_;
  const std::size_t most_open_bytes_, most_open_keys_;
  const backend::events& events_;
  std::deque<epoch_book> books_;  ///< one a server
  redis_answers answers_;
  std::deque<server> servers_;
  std::vector<std::uint64_t> seeds_;
  /// Instances that this node's own tiers are asked to clear. True: another clear was found since they were.
  std::map<instance_identity, bool> clears_asked_;
  cluster::recent_removals unserved_;          ///< keys that are being removed
  kept_removals old_removals_;                 ///< that were removed
  std::set<instance_identity> stamped_;        ///< instances in use here: their removal stamps are looked at
  std::set<instance_identity> forced_clears_;  ///< instances to be cleared in place of removals that were too many
  removal_book book_;
  removals removals_;
  steady_time now_{};  ///< of the answers that are given
  std::optional<bool> stands_;
  std::string said_reason_;  ///< why it does not stand, as of the last report
};

}  // namespace cenote::remote
