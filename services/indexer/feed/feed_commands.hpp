// Decisions of a feed, for its owner to carry out in the order in which they stand.
#pragma once

#include <cstdint>
#include <variant>

#include "core/enum_names.hpp"
#include "services/indexer/feed/batch_payload.hpp"

namespace cenote::indexer {

enum class batch_source : std::uint8_t { live, replay, snapshot };
CENOTE_ENUM_NAMES(batch_source, live, replay, snapshot);

/// Apply the events of this batch.
struct feed_apply {
  std::uint64_t turn = 0;  ///< grows with each feed_apply and feed_clear; see feed::all_cleared()
  std::uint64_t seq = 0;   ///< 0 in a snapshot
  batch_source source{};
  batch_payload payload{};
};

enum class clear_reason : std::uint8_t {
  restart,  ///< the engine began anew
  loss,     ///< batches are lost, removals maybe
  renewal,  ///< what follows takes the place of all there is
};
CENOTE_ENUM_NAMES(clear_reason, restart, loss, renewal);

/// Take out all blocks of this publisher, in all its media; those of other publishers (an engine's node) stay.
struct feed_clear {
  std::uint64_t turn = 0;
  clear_reason reason{};
};

enum class replay_kind : std::uint8_t {
  check,     ///< from batches that were applied already, to compare them
  whole,     ///< from 0
  snapshot,  ///< the request "snapshot"; all else is ignored until its end
};
CENOTE_ENUM_NAMES(replay_kind, check, whole, snapshot);

/// Open a new socket to the publisher's replay endpoint and ask; one at a time, so that no late frame of an earlier
/// request can be taken for one of this.
struct feed_ask {
  std::uint64_t number = 0;  ///< of the request, for the frames that answer it
  replay_kind kind{};
  std::uint64_t start = 0;  ///< the first batch wanted; of no meaning for a snapshot
};

/// The request is over, answered or not: close its socket.
struct feed_stop {
  std::uint64_t number = 0;
};

enum class publisher_state : std::uint8_t { connecting, replaying, live, degraded, silent };
CENOTE_ENUM_NAMES(publisher_state, connecting, replaying, live, degraded, silent);

/// The state of a publisher has changed.
struct feed_mark {
  publisher_state state = publisher_state::connecting;
  bool is_in_answers = true;  ///< false after `grace` without a connection, until a replay is through
  bool is_degraded = false;   ///< events are lost: blocks may be missing, none is there too much

  bool operator==(const feed_mark&) const = default;
};

using feed_command = std::variant<feed_apply, feed_clear, feed_ask, feed_stop, feed_mark>;

}  // namespace cenote::indexer
