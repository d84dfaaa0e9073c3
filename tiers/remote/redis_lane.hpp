// One connection to a Redis server, kept up: what it is asked, under which epoch, and what the replies mean.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "tiers/remote/redis_answers.hpp"
#include "tiers/remote/redis_connection.hpp"
#include "tiers/remote/redis_site.hpp"

namespace cenote::remote {

/// Values above that are refused: Redis's own limit.
inline constexpr std::size_t most_redis_value_bytes = std::size_t{512} << 20U;

/// Not thread-safe; time is an argument.
///
/// Keys are `prefix:identity:epoch:block key`, all but the prefix in hex; the epoch of an instance is kept at
/// `prefix:identity:epoch`, with the clears before it (epoch_record). Before anything of an instance is asked on a
/// connection its epoch is read there, and made new if the server has none or an older one than this node knows of.
/// Each run of commands begins with reading it again, and so does each removal: if it is another one, what was got or
/// asked in that run counts as missing, and what was put or removed is sent again. A put that the server took while its
/// epoch held is not: where another connection has made a newer one meanwhile it is `refused`, since it may have been
/// seen and removed. An epoch of a clear that this node has not made holds everything of the instance back until this
/// node's own tiers have cleared it; puts of before are over then.
///
/// Beside the epoch, at `prefix:identity:removals`, stands the removal stamp of an instance (removal_stamps). A put of
/// what the server missed while it was away is carried out by a script that compares it, or `refused`.
///
/// A put that was given up after its bytes had begun to go out may land until its reply or the end of its connection: a
/// removal of its key waits for that, and a deletion follows it in any case.
class redis_lane {
 public:
  redis_lane(redis_site& site, const redis_settings& settings, redis_answers& answers);

  /// Sends it as soon as it may, or answers at once when there is no connection.
  void take(redis_request request, steady_time now);
  /// The same, before all that waits.
  void take_first(redis_request request, steady_time now);
  /// Ends the puts of these keys that were not sent, and has a deletion follow those that may still land: their keys.
  [[nodiscard]] std::vector<block_key> end_puts(instance_identity identity, std::span<const block_key> sorted_keys,
                                                steady_time now);
  /// Reads the epoch of an instance, if there is a connection; makes none.
  void look(instance_identity identity);
  /// Reads the removal stamp of an instance, if there is a connection; makes one if the server has none.
  void look_at_stamp(instance_identity identity);
  /// This node's own tiers have cleared an instance, or could not.
  void end_clear_above(instance_identity identity, const result<void>& outcome, steady_time now);
  /// Connects, ends what is late, sends what waits.
  void turn(steady_time now);
  /// What poll() saw.
  void serve(short events, steady_time now);
  /// Answers all that is open, and closes.
  void stop(steady_time now);
  /// The same, and connects again.
  void reset(steady_time now) { lose(error(error_code::system, "an exception in this node ended it"), now); }

  [[nodiscard]] pollfd watched() const noexcept;
  /// When turn() has something to do without an event.
  [[nodiscard]] steady_time next_turn() const noexcept;
  [[nodiscard]] bool is_ready() const noexcept { return state_ == state::ready; }
  /// Why the last connection or attempt ended; nothing before the first did, and while it is ready.
  [[nodiscard]] const std::optional<error>& failure() const noexcept { return failure_; }

 private:
  enum class state : std::uint8_t { waiting, resolving, connecting, greeting, ready };
  enum class standing : std::uint8_t { unknown, looking, renewing, clearing_above, known, stuck };
  /// What this connection knows of the epoch of an instance.
  struct instance {
    standing what = standing::unknown;
    epoch number = 0;                      ///< known: what keys are made with
    epoch seen = 0;                        ///< what the server said last
    std::uint64_t run = 0;                 ///< that began with reading it
    steady_time looked_at{};               ///< when that was asked for last
    steady_time stamped_at{};              ///< when a new removal stamp was sent last
    std::optional<error> stamp_failure{};  ///< the last one was not set: removals behind it are not confirmed
    unsigned rounds = 0;                   ///< renewals that another node was faster with
    steady_time retry_at{};                ///< stuck
    std::deque<redis_request> held{};      ///< wait for it
  };

  /// A value on the server, as its key names it.
  struct value_name {
    instance_identity identity{};
    epoch number = 0;
    block_key key{};
  };

  // The connection.
  [[nodiscard]] bool admit(redis_request& request, steady_time now);
  void begin_attempt(steady_time now);
  void connect(steady_time now);
  void greet(steady_time now);
  void greet_with(std::string command, steady_time now);
  void lose(const error& why, steady_time now);
  void remember_lost(const redis_request& request);
  void watch_silence(steady_time now);
  void expire(steady_time now);

  // What goes out.
  void pump(steady_time now);
  void end_run();
  [[nodiscard]] std::size_t window_of(const redis_request& next) const noexcept;
  void dispatch(redis_request request, steady_time now);
  void send_command(redis_request request, instance& of, steady_time now);
  [[nodiscard]] bool send_again(redis_request& request);
  void take_back(redis_request request);
  [[nodiscard]] std::string head_of_put(const redis_request& request, const std::string& key) const;
  void send_look(instance_identity identity);
  void send_stamp(instance_identity identity);
  void send_own(request_kind kind, std::string command);
  [[nodiscard]] std::string key_of(const value_name& name) const;
  [[nodiscard]] std::string epoch_key(instance_identity identity) const;
  [[nodiscard]] std::string stamp_key(instance_identity identity) const;

  // What comes in.
  void on_reply(redis_request& request, const redis::server_reply& reply, steady_time now);
  void on_greeting(const redis::server_reply& reply, steady_time now);
  void on_probe(const redis::server_reply& reply);
  void on_stamp(const redis_request& request, const redis::server_reply& reply, steady_time now);
  void on_look(const redis_request& request, const redis::server_reply& reply, steady_time now);
  void on_renewed(const redis_request& request, const redis::server_reply& reply, steady_time now);
  void on_put(redis_request& request, const redis::server_reply& reply, steady_time now);
  void on_other_stamp(redis_request& request, steady_time now);
  void on_got(redis_request& request, const redis::server_reply& reply, steady_time now);
  void on_count(redis_request& request, const redis::server_reply& reply, steady_time now);
  void on_failure(redis_request& request, const redis::server_reply& reply, steady_time now);
  void settle(instance_identity identity, instance& of, std::string_view raw, const epoch_record& seen,
              steady_time now);
  void serve_from(instance_identity identity, instance& of, epoch number, steady_time now);
  void give_up(instance& of, std::string_view reply, steady_time now);
  void stick(instance& of, const std::string& why, steady_time now);
  void end_held(instance& of, const error& why, steady_time now);
  void discard(const value_name& name, request_kind kind);
  [[nodiscard]] static value_name value_of(const redis_request& request) noexcept {
    return {request.name.identity, request.number, request.key};
  }
  void note(const result<void>& written);
  [[nodiscard]] bool is_current(const redis_request& request) const noexcept;
  [[nodiscard]] bool was_unseen(const redis_request& request) const noexcept;
  void forget_idle_instances();

  redis_site* site_;
  const redis_settings* settings_;
  redis_answers* answers_;
  redis_connection connection_;
  state state_ = state::waiting;
  steady_time retry_at_{};
  steady_time attempt_until_{};
  steady_time greeted_{};
  steady_time ready_since_{};
  steady_time::duration round_trip_{};  ///< the shortest of this connection
  steady_time last_busy_{};
  steady_time soonest_ = steady_time::max();  ///< deadline of any request
  unsigned failures_ = 0;                     ///< in a row
  std::size_t attempts_ = 0;
  unsigned greetings_open_ = 0;
  std::optional<error> failure_;
  std::optional<error> doom_;  ///< why the connection must be given up when the replies at hand are through
  std::deque<redis_request> queue_;
  std::vector<value_name> lost_puts_;      ///< their connection ended: they may land until the next one serves
  std::vector<value_name> owed_discards_;  ///< for the next connection
  std::unordered_map<instance_identity, instance> instances_;
  std::uint64_t run_ = 1;
  steady_time run_began_{};
  std::size_t run_commands_ = 0;
  std::size_t run_bytes_ = 0;
  std::size_t too_big_ = most_redis_value_bytes + 1;  ///< the least size that the server refused
};

}  // namespace cenote::remote
