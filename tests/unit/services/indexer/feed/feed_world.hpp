// A publisher and a feed that follows it, in virtual time, with everything between them going wrong by a seed.
//
// Real: feed with its run and its queue. The test plays the publisher with its ring, the two channels, the owner of the
// feed and an index that is a set.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/indexer/feed/feed.hpp"

namespace cenote::testing {

struct feed_world_options {
  indexer::feed_rules rules{};
  bool shows = false;  ///< prints what happens
};

/// Events of one world, so that a test can see that the worlds are no idle ones.
struct feed_figures {
  std::uint64_t applied = 0, replayed = 0, snapshots = 0, gaps = 0, doubles = 0, restarts = 0, losses = 0;
  std::uint64_t kills = 0, asks = 0, failures = 0, late_frames = 0, unconfirmed = 0, dropped = 0, parents = 0;
  std::uint64_t equal = 0, degraded = 0;

  feed_figures& operator+=(const feed_figures& other);
};

/// Fifteen seconds of faults, then peace, in which the publisher goes on for a while. Then
/// - the index has the publisher's blocks, or the publisher is degraded and the index has some of them and no others;
/// - it is degraded only if the publisher's ring is short and it has no snapshots, or if it never answers;
/// - nothing waits. And all along an absent publisher is in no answer after the grace, and what waits is bounded.
class feed_world {
 public:
  feed_world(std::uint64_t seed, feed_world_options options);
  feed_world(const feed_world&) = delete;
  feed_world& operator=(const feed_world&) = delete;

  /// None: all held. Else what did not, and when.
  [[nodiscard]] std::optional<std::string> run();
  [[nodiscard]] feed_figures figures() const;

 private:
  using time_point = indexer::feed_time;
  using duration = time_point::duration;
  static constexpr std::uint64_t endless = std::numeric_limits<std::uint64_t>::max();

  struct incident {
    time_point time;
    std::uint64_t order = 0;
    std::function<void()> action;
    bool operator>(const incident& other) const { return std::pair(time, order) > std::pair(other.time, other.order); }
  };
  /// Habits of this world.
  struct manners {
    std::uint64_t ring = endless;
    bool has_snapshots = false, is_node = false;
    bool is_bound = false;      ///< the publisher connects: nothing is noticed of that
    bool is_deaf = false;       ///< it answers to no replay
    bool shares_names = false;  ///< all lives call their blocks the same
    bool is_idle = false;       ///< it publishes at its start, and then nothing until peace
    std::uint64_t faults = endless;
    bool swaps = false;  ///< live batches overtake each other
    double loses = 0, doubles = 0, cuts = 0, holes = 0, delays = 0;
  };
  struct event {
    std::uint64_t kind = 0, block = 0, parent = 0;
  };
  /// A process that publishes.
  struct process {
    std::uint64_t life = 0, tag = 0, next = 0;
    time_point begin{};
    std::set<std::uint64_t> blocks, survivors;
    std::vector<std::vector<event>> log;
    std::deque<std::pair<std::uint64_t, indexer::batch_payload>> ring;
  };

  [[nodiscard]] manners some_manners();
  [[nodiscard]] indexer::feed_options some_options();

  // Time and chance.
  void plan(duration delay, std::function<void()> action);
  void run_until(time_point end);
  [[nodiscard]] double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  [[nodiscard]] std::uint64_t number(std::uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  [[nodiscard]] duration lag(std::uint64_t most_ms) { return std::chrono::microseconds(number(most_ms * 1000 + 1)); }

  // The publisher.
  void start_process(bool is_lost);
  void kill_process();
  void publish(std::vector<event> events, bool is_lost);
  static void change(std::set<std::uint64_t>& blocks, const event& happening);
  void publish_some(bool is_lost = false);
  [[nodiscard]] std::vector<event> some_events();
  void send_live(std::uint64_t seq, const indexer::batch_payload& payload);
  void answer(const indexer::feed_ask& question);
  void answer_snapshot(std::uint64_t request);
  void answer_batches(const indexer::feed_ask& question);

  // The owner and the index.
  void deliver(std::uint64_t seq, const indexer::batch_payload& payload);
  void notice(bool is_connected, std::uint64_t life);
  void carry_out();
  void apply(const indexer::feed_apply& batch);
  void set_alarm();

  void fault();
  void work();
  void check();
  void check_quiet();
  void check_peace();
  void fail(const std::string& message);
  void show(const std::string& message);

  std::mt19937_64 random_;
  feed_world_options options_;
  manners habit_;
  indexer::feed_options followed_;
  time_point start_{std::chrono::hours(1)}, now_ = start_;
  std::uint64_t order_ = 0;
  std::priority_queue<incident, std::vector<incident>, std::greater<>> incidents_;
  std::optional<process> publisher_;
  std::uint64_t lives_ = 0;
  std::set<std::uint64_t> survivors_;  ///< of a node
  time_point cut_end_{}, pause_end_{}, last_arrival_{}, away_since_ = time_point::max();
  time_point alarm_ = time_point::max();
  indexer::feed feed_;
  std::set<std::uint64_t> blocks_, names_;  ///< in the index
  std::uint64_t last_life_ = 0;             ///< of the batch applied last
  std::uint64_t delivered_next_ = 0;        ///< behind the highest number that came live of the present life
  std::uint64_t connected_next_ = 0;        ///< the publisher's next number at the last notice of a connection
  bool has_unknown_parent_ = false, is_peace_ = false;
  std::optional<std::string> failure_;
  feed_figures figures_;
};

}  // namespace cenote::testing
