// The feeds of all publishers: their names, how many there may be, and which of them may replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/feed/feed.hpp"

namespace cenote::indexer {

/// Never given twice.
using publisher_id = std::uint64_t;

struct feeds_options {
  std::size_t publishers = 65'536;                          ///< further ones are refused
  std::size_t name_bytes = 256;                             ///< of a publisher's name
  std::size_t replays = 8;                                  ///< at a time; those that wait longest come first
  std::size_t doubtful_replays = 8;                         ///< beside them, of publishers whose last one failed
  std::size_t slow_replays = 256;                           ///< and beside them, of those that outlast a turn
  std::chrono::milliseconds turn{2'000};                    ///< that a replay may take from others
  std::uint64_t waiting_bytes = std::uint64_t{256} << 20U;  ///< of live batches that wait, of all publishers together
};

struct feeds_counters {
  std::uint64_t refused_names = 0;       ///< empty, or too long
  std::uint64_t refused_publishers = 0;  ///< found no room
};

struct publisher_command {
  publisher_id publisher = 0;
  feed_command command{};
};

/// Publishers by name. An input, a turn for a replay and an alarm take logarithmic time, however many publishers there
/// are. Not thread-safe; the time is an argument that never goes back.
class feeds {
 public:
  explicit feeds(const feeds_options& options = {}) : options_(options) { total_.limit = options.waiting_bytes; }
  feeds(const feeds&) = delete;
  feeds& operator=(const feeds&) = delete;

  /// A publisher's feed, made if there is none of that name; `options` matter only then. `invalid_argument`: an empty
  /// or too long name; `limit_exceeded`: there are too many publishers.
  [[nodiscard]] result<publisher_id> obtain(std::string_view name, const feed_options& options);
  [[nodiscard]] std::optional<publisher_id> find(std::string_view name) const;
  /// Commands of it that were not taken are dropped; its sockets and blocks are the caller's to end.
  void erase(publisher_id publisher);

  /// Gives a feed its input, `input(feed&)`, and all that may replay their turn. Nothing if there is no such publisher.
  template <class Input>
  void change(publisher_id publisher, feed_time now, Input&& input) {
    const auto found = entries_.find(publisher);
    if (found == entries_.end()) return;
    std::forward<Input>(input)(found->second.batches);
    refresh(publisher, found->second, now);
    grant(now);
  }
  /// To be called at wake_at(), or at any time.
  void advance(feed_time now);
  [[nodiscard]] feed_time wake_at() const noexcept;
  /// The commands of all feeds since the last call; those of one publisher in their order.
  [[nodiscard]] std::vector<publisher_command> take_commands();

  /// Null: there is none. Until the next erase() of it.
  [[nodiscard]] const feed* feed_of(publisher_id publisher) const noexcept;
  /// The name that obtain() was given; empty: there is none.
  [[nodiscard]] std::string_view name_of(publisher_id publisher) const noexcept;
  /// Ascending.
  [[nodiscard]] std::vector<publisher_id> publishers() const;
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t replays() const noexcept { return replays_ + doubtful_replays_ + slow_replays_; }
  /// Connected publishers whose first replay is not through.
  [[nodiscard]] std::size_t unready() const noexcept { return unready_; }
  [[nodiscard]] std::uint64_t waiting_bytes() const noexcept { return total_.used; }
  [[nodiscard]] const feeds_counters& counters() const noexcept { return counters_; }

 private:
  struct followed_publisher {
    followed_publisher(std::string_view text, const feed_options& options, waiting_total* total)
        : name(text), batches(options, total) {}

    std::string name;
    feed batches;
    feed_time alarm = feed_time::max(), turn = feed_time::max();  ///< as they stand in alarms_ and turns_
    feed_time turn_end = feed_time::max();                        ///< of the replay under way
    bool is_replaying = false, is_doubtful = false, is_slow = false, is_unready = false;  ///< as it is counted
  };
  struct name_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
  };
  using schedule = std::set<std::pair<feed_time, publisher_id>>;

  void refresh(publisher_id publisher, followed_publisher& changed, feed_time now);
  void withdraw(publisher_id publisher, followed_publisher& target);
  [[nodiscard]] std::size_t& count_of(const followed_publisher& replaying) noexcept;
  void grant(feed_time now);
  void grant(schedule& turns, std::size_t& running, std::size_t bound, feed_time now);

  feeds_options options_;
  feeds_counters counters_;
  waiting_total total_;
  std::map<publisher_id, followed_publisher> entries_;
  std::unordered_map<std::string, publisher_id, name_hash, std::equal_to<>> ids_;  ///< by name
  schedule alarms_, turns_, doubtful_turns_;
  std::vector<publisher_command> commands_;
  publisher_id next_ = 1;
  std::size_t replays_ = 0, doubtful_replays_ = 0, slow_replays_ = 0, unready_ = 0;
};

}  // namespace cenote::indexer
