// The indexer within a program, without sockets and threads: batches of events in, scores of pods out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "services/indexer/feed/feed_counters.hpp"
#include "services/indexer/forest/forest.hpp"
#include "services/indexer/library/feed_outcome.hpp"
#include "services/indexer/library/local_index_options.hpp"
#include "services/indexer/placement/placement_counters.hpp"
#include "services/indexer/scoring/scorer.hpp"

namespace cenote::indexer {

/// A rank of a pod and the publisher of its blocks.
struct local_pod {
  std::string_view pod{};
  std::uint16_t dp_rank = 0;
  std::string_view model{};
  std::string_view topic{};
  publisher_state state{};
  std::optional<std::uint64_t> last_seq{};  ///< none: no batch was applied
  std::array<std::uint64_t, most_media> blocks{};
  feed_counters counters{};
};

struct local_figures {
  placement_counters events{};
  std::uint64_t bad_batches = 0;  ///< payloads that are no batch, or exceed a bound
  std::size_t publishers = 0;     ///< topics
  std::size_t memory = 0;         ///< the bound, in bytes
  forest_figures index{};
};

/// Questions are answered by scorers, one a thread, beside the one thread that calls all else: no locks on either side.
/// The time is an argument that never goes back; calls are meant to come with the present one. Movable; an object that
/// was moved from may only be assigned to or destroyed.
class local_index {
 public:
  /// Errors: invalid_argument: memory, weights; limit_exceeded: the machine does not have the memory.
  [[nodiscard]] static result<local_index> make(const local_index_options& options);
  local_index(const local_index&) = delete;
  local_index& operator=(const local_index&) = delete;
  local_index(local_index&&) noexcept;
  local_index& operator=(local_index&&) noexcept;
  ~local_index();

  /// A topic's next batch, as the publisher's socket has it: `kv@<pod>@<model>`, its number, MessagePack. The topic is
  /// opened where it is new. The bytes are read, or copied, during the call. Errors: invalid_argument: the topic;
  /// limit_exceeded: there is no room for another publisher.
  [[nodiscard]] result<feed_outcome> feed(std::string_view topic, std::uint64_t seq, std::span<const std::byte> payload,
                                          feed_time now);
  /// A batch that answers the topic's question `ask`; in a snapshot `seq` does not matter. Errors: invalid_argument:
  /// the topic is not open.
  [[nodiscard]] result<feed_outcome> replay(std::string_view topic, std::uint64_t ask, std::uint64_t seq,
                                            std::span<const std::byte> payload, feed_time now);
  /// The answer is through. `next`: the number of its last frame; of a snapshot, that of the batch with which live ones
  /// go on, or end_number where the publisher has no snapshots. Errors: as replay().
  [[nodiscard]] result<feed_outcome> end_replay(std::string_view topic, std::uint64_t ask, std::uint64_t next,
                                                feed_time now);
  /// There is no answer. After several, live batches are applied as they come. Errors: as replay().
  [[nodiscard]] result<feed_outcome> fail_replay(std::string_view topic, std::uint64_t ask, feed_time now);

  /// The next question that was not given yet, of any topic: those that came late, or again. None: there is none now.
  [[nodiscard]] std::optional<topic_ask> next_ask(feed_time now);

  /// Opens a topic with settings of its own, or does nothing if it is open with the same. Errors: as feed();
  /// spec_mismatch: it is open with others.
  [[nodiscard]] result<void> open(std::string_view topic, const topic_settings& settings, feed_time now);
  /// The publisher and its blocks go; false: it is not open.
  bool close(std::string_view topic, feed_time now);
  /// Takes all blocks from a pod, in one medium or (empty) in all. False if there is no such pod; invalid_argument: no
  /// such medium.
  [[nodiscard]] result<bool> clear(std::string_view pod, std::string_view medium, feed_time now);
  /// Gives memory back and looks at answers that are late. feed() does it about ten times a second; to be called where
  /// nothing is fed for a long time.
  void advance(feed_time now);

  /// Calls `visit` for each rank of a pod that has a publisher, and for publishers without blocks.
  void pods(const std::function<void(const local_pod&)>& visit);
  [[nodiscard]] local_figures figures() const;

  /// An object that answers questions, with the weights of the options. From any thread; it must end before the index.
  /// Errors: limit_exceeded: there are epoch_table::most_readers.
  [[nodiscard]] result<scorer> open_scorer();

 private:
  class index_parts;
  explicit local_index(std::unique_ptr<index_parts> parts) noexcept;

  std::unique_ptr<index_parts> parts_;
};

}  // namespace cenote::indexer
