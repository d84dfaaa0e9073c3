// One publisher's numbered batches: which to apply, what to ask for again, when its blocks have to go.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "services/indexer/feed/batch_payload.hpp"
#include "services/indexer/feed/batch_run.hpp"
#include "services/indexer/feed/feed_commands.hpp"
#include "services/indexer/feed/feed_counters.hpp"
#include "services/indexer/feed/feed_options.hpp"
#include "services/indexer/feed/waiting_batches.hpp"

namespace cenote::indexer {

/// Two marks, the last batch applied and the last one that came live, and between them what is missing. Commands are
/// such that, carried out in their order, they leave the publisher's state, or a part of it while it is degraded.
///
/// No socket and no thread: inputs are what came, commands what to do, the time is an argument that never goes back.
/// Every number between 0 and 2^64-1 is survived in constant time and memory. Not thread-safe.
class feed {
 public:
  /// `total`, if there is one, bounds what waits together with other feeds, and outlives it.
  explicit feed(const feed_options& options, waiting_total* total = nullptr);

  /// A connection to the publisher stands, and what an earlier one still had was read. Publishers that connect to a
  /// bound endpoint are connected with their first batch.
  void connected(feed_time now);
  /// The connection is gone. Batches that it still had may follow.
  void disconnected(feed_time now);
  /// A batch came live. Those above `batch_bytes`, and the number 2^64-1, are refused and counted.
  void live(std::uint64_t seq, batch_payload payload, feed_time now);
  /// A frame, the end, or the failure of what feed_ask `number` asked for; those of earlier requests do nothing.
  void replay_frame(std::uint64_t number, std::uint64_t seq, batch_payload payload, feed_time now);
  void replay_end(std::uint64_t number, feed_time now);
  void replay_failed(std::uint64_t number, feed_time now);
  void snapshot_frame(std::uint64_t number, batch_payload payload, feed_time now);
  /// Live batches go on at `next`. 2^64-1 is the end of a plain replay: the publisher has no snapshots.
  void snapshot_end(std::uint64_t number, std::uint64_t next, feed_time now);
  /// The batch of feed_apply `turn` took out all blocks of all media: nothing that was lost before matters.
  void all_cleared(std::uint64_t turn, feed_time now);
  /// A batch, or a removal in one, made no sense: what is there may be gone, and goes.
  void unread(feed_time now);
  /// An event's parent is not known although its publisher must have sent it: at most one question in `parent_pause`.
  void unknown_parent(feed_time now);
  /// A replay that is wanted may begin: gives its feed_ask.
  void begin_replay(feed_time now);
  /// To be called at wake_at(), or at any time.
  void advance(feed_time now);

  /// The commands since the last call. To be taken after each input: they are not bounded otherwise.
  [[nodiscard]] std::vector<feed_command> take_commands();
  /// The time from which begin_replay() has something to do; time_point::max(): none is wanted.
  [[nodiscard]] feed_time replay_at() const noexcept;
  /// The time at which advance() has something to do; time_point::max(): never.
  [[nodiscard]] feed_time wake_at() const noexcept;

  [[nodiscard]] bool is_replaying() const noexcept { return running_.has_value(); }
  /// The last request was answered by nothing: the next may be, too.
  [[nodiscard]] bool is_doubtful() const noexcept { return tries_ > 0; }
  /// The first replay is through, or was given up.
  [[nodiscard]] bool is_ready() const noexcept { return is_ready_; }
  [[nodiscard]] feed_mark mark() const noexcept;
  [[nodiscard]] const feed_counters& counters() const noexcept { return counters_; }
  /// The last batch applied; none: there is none since the publisher began.
  [[nodiscard]] std::optional<std::uint64_t> last_applied() const noexcept;
  [[nodiscard]] std::uint64_t waiting_bytes() const noexcept { return waiting_.bytes(); }
  /// Seconds since a batch has been missing or waiting; 0: none is.
  [[nodiscard]] double behind_s(feed_time now) const noexcept;

 private:
  /// Something to ask for.
  struct wish {
    replay_kind kind{};
    feed_time earliest{};
    bool is_urgent = true;  ///< live batches wait for it
    bool is_full = false;   ///< whole: all is applied again even if nothing is missing
  };
  /// The request under way.
  struct replay_request {
    std::uint64_t number = 0;
    replay_kind kind{};
    bool is_full = false;
    feed_time heard_at{}, limit{};
    std::uint64_t proof = 0;      ///< the batch that has to come first, to be compared
    std::uint64_t expected = 0;   ///< the number of the next frame, once it is proved
    std::uint64_t applied = 0;    ///< behind the last batch applied when it was sent; 0: it no longer matters
    std::uint64_t progress = 0;   ///< run_.next() then
    std::uint64_t live_next = 0;  ///< live_next_ then
    std::uint64_t order = 0;      ///< waiting_.order() then
    bool has_frames = false;
    bool is_proved = false;  ///< its frames are of the life of the run
  };

  [[nodiscard]] bool is_refused(std::uint64_t seq, const batch_payload& payload) noexcept;
  [[nodiscard]] bool is_of_running(std::uint64_t number, feed_time now) noexcept;
  [[nodiscard]] bool holds_live() const noexcept;
  [[nodiscard]] bool is_double(std::uint64_t seq, std::uint64_t fingerprint) const noexcept;
  [[nodiscard]] feed_time deadline() const noexcept;
  void rest(feed_time now, std::chrono::milliseconds pause) noexcept;
  [[nodiscard]] feed_time pause_end(feed_time now) const noexcept;

  void doubt(feed_time now);
  void take_live(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload, feed_time now);
  void skip(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload);
  void take_bare(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload);
  void take_replayed(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload, feed_time now);
  [[nodiscard]] bool is_better_start(std::uint64_t seq) const noexcept;
  [[nodiscard]] bool prove(std::uint64_t seq, std::uint64_t fingerprint, feed_time now);
  [[nodiscard]] bool bridge(std::uint64_t seq, feed_time now);

  void apply(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload, batch_source source);
  void clear(clear_reason reason);
  void begin_run(std::uint64_t first, clear_reason reason);
  void begin_anew(feed_time now);
  void want(replay_kind kind, feed_time earliest, bool is_urgent = true);
  void stop();
  void fail(feed_time now);
  void give_up(feed_time now);
  void settle(const replay_request& answered, feed_time now);
  void drain(feed_time now);
  void note(feed_time now);
  void report();

  feed_options options_;
  batch_run run_;
  waiting_batches waiting_;
  feed_counters counters_;
  std::vector<feed_command> commands_;
  feed_mark reported_{};
  std::optional<wish> wish_;
  std::optional<replay_request> running_;
  std::uint64_t live_next_ = 0;  ///< behind the highest live number; 0: none came
  std::uint64_t turn_ = 0, run_turn_ = 0;
  std::uint64_t connected_order_ = 0;  ///< waiting_.order() when the connection was made
  std::uint64_t number_ = 0;           ///< of the last request
  std::uint64_t ring_start_ = 0;       ///< the publisher's ring begins no earlier in this life
  std::uint64_t hole_ = 0;             ///< in a replay, the number that was missing
  std::uint32_t holes_ = 0;            ///< times that it was
  std::uint32_t tries_ = 0;            ///< requests in vain, in a row
  std::uint32_t short_answers_ = 0;
  bool is_complete_ = false;  ///< the run lacks nothing
  bool has_media_ = false;    ///< something was applied since the last clear
  bool has_given_up_ = false;
  bool has_no_replay_ = false;        ///< the publisher answers with nothing
  bool has_no_snapshot_ = false;      ///< it does not know the request
  bool has_failed_snapshot_ = false;  ///< a replay comes first, and then a snapshot again
  bool is_connected_ = false, was_connected_ = false, is_silent_ = false;
  bool is_parent_checked_ = false, is_ready_ = false;
  feed_time quiet_at_ = feed_time::max();  ///< a check is due, if nothing comes before
  std::chrono::milliseconds quiet_pause_{};
  feed_time away_since_{};
  std::optional<feed_time> asked_at_, doubted_at_, parent_asked_, behind_since_;
};

}  // namespace cenote::indexer
