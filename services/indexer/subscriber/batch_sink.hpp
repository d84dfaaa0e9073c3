// The receiver of what the subscriber decides: batches in their order, and what becomes of their publishers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/indexer/events/event_format.hpp"
#include "services/indexer/feed/feed_commands.hpp"
#include "services/indexer/feed/feeds.hpp"
#include "services/indexer/placement/payload_placer.hpp"
#include "services/indexer/placement/publisher_identity.hpp"

namespace cenote::indexer {

/// All calls come from the subscriber's thread, those of one publisher in order. As long as one lasts, batches of all
/// publishers wait in their sockets, and above the bound of those they are dropped and asked for again. Nothing may be
/// thrown.
class batch_sink {
 public:
  virtual ~batch_sink() = default;

  /// Before anything else of this publisher.
  virtual void open(publisher_id publisher, const publisher_identity& identity) = 0;
  /// `topic`: the publisher's; empty if none has come, since an engine's answers have none. Of identities that are
  /// configured it may change.
  virtual batch_effect apply(publisher_id publisher, std::string_view topic, const feed_apply& batch) = 0;
  virtual void clear(publisher_id publisher, clear_reason reason) = 0;
  virtual void mark(publisher_id publisher, const feed_mark& mark) = 0;
  /// Its blocks go; the id never comes again.
  virtual void close(publisher_id publisher) = 0;
  /// About ten times a second, whatever comes. Gives publishers for which open() found no room and that have it now:
  /// they are closed, opened and asked for all of their blocks.
  virtual std::vector<publisher_id> advance(feed_time now) = 0;
};

}  // namespace cenote::indexer
