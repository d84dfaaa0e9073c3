// One publisher as the subscriber's thread has it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "services/indexer/feed/feed_options.hpp"
#include "services/indexer/feed/feeds.hpp"
#include "services/indexer/subscriber/batch_sink.hpp"
#include "services/indexer/subscriber/message_source.hpp"
#include "services/indexer/subscriber/publisher_options.hpp"
#include "services/indexer/subscriber/replay_line.hpp"

namespace cenote::indexer {

/// Never given twice; it stays when the publisher's pod changes and its id with it.
using entry_number = std::uint64_t;

/// Its sockets and its identity. Sockets are watched under its number, and end before the poller.
struct publisher_entry {
  entry_number number = 0;
  publisher_id publisher = 0;
  std::string key{};  ///< in feeds
  publisher_identity identity{};
  feed_options options{};
  std::string replay{};  ///< the endpoint; empty: none

  // Of one that is configured.
  std::optional<publisher_options> settings{};
  std::optional<message_source> source{};
  entry_number primary = 0;  ///< of a node's further topic: the entry whose source it shares; 0: it is one itself
  std::map<std::string, entry_number, std::less<>> topics{};  ///< those entries, by topic

  // Of one at a bound endpoint.
  std::uint64_t lane = 0;
  std::set<int> connections{};  ///< by which its batches came and that are not gone
  feed_time away_since{};       ///< if there is none

  std::string topic{};  ///< the newest that it used
  std::optional<replay_line> line{};
  feed_mark mark{};                          ///< the newest
  bool is_connected = false;                 ///< as its feed has it
  bool is_open = false;                      ///< in the sink
  bool has_topic = false;                    ///< `topic` was received
  std::optional<feed_time> identified_at{};  ///< when its identity changed last
  std::uint64_t malformed = 0, malformed_row = 0;
  bool is_shown = false;  ///< in the log, once in its life: there may be many

  [[nodiscard]] bool is_bound() const noexcept { return !settings.has_value(); }
};

}  // namespace cenote::indexer
