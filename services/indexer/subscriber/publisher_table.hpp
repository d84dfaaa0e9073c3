// All publishers at a moment, for status and metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/indexer/feed/feed_commands.hpp"
#include "services/indexer/feed/feed_counters.hpp"
#include "services/indexer/feed/feed_options.hpp"
#include "services/indexer/feed/feeds.hpp"
#include "services/indexer/subscriber/batch_sink.hpp"

namespace cenote::indexer {

struct publisher_row {
  publisher_id publisher = 0;
  publisher_identity identity{};  ///< pod and model are empty until a topic names them
  bool is_bound = false;          ///< it connected to a bound endpoint
  bool is_open = false;           ///< batch_sink::open() was called
  feed_mark mark{};
  std::optional<std::uint64_t> last_seq{};  ///< the last batch applied
  feed_counters counters{};
  std::uint64_t malformed = 0;      ///< messages that are no batch, or of another pod
  std::uint64_t malformed_row = 0;  ///< the newest of them without a batch between
  std::uint64_t waiting_bytes = 0;  ///< of live batches behind a replay
  double behind_s = 0;              ///< since a batch has been missing or waiting
};

/// Sums since the start.
struct subscriber_counters {
  std::uint64_t batches = 0;             ///< that came live, doubles among them
  std::uint64_t bytes = 0;               ///< of their payloads
  std::uint64_t malformed = 0;           ///< messages that are no batch: parts, a number's size, a topic's
  std::uint64_t foreign = 0;             ///< batches of a topic that is not their publisher's
  std::uint64_t refused_topics = 0;      ///< of new publishers at bound endpoints: no pod, too long, not UTF-8
  std::uint64_t refused_publishers = 0;  ///< found no room, or no socket
  std::uint64_t refused_replays = 0;     ///< found no socket
  std::uint64_t no_replay_hosts = 0;     ///< new publishers whose pod is no host, so that nothing is asked there
  std::uint64_t identity_changes = 0;    ///< publishers whose topic named another pod or model
  std::uint64_t expired = 0;             ///< publishers of bound endpoints that were away too long
};

struct publisher_table {
  feed_time time{};
  std::vector<publisher_row> rows{};  ///< in the order in which they came
  subscriber_counters totals{};
  feeds_counters refusals{};
  std::size_t replays = 0;  ///< under way
  std::size_t unready = 0;  ///< connected publishers whose first replay is not through
  std::uint64_t waiting_bytes = 0;
};

}  // namespace cenote::indexer
