// Facts about a publisher that decide whose blocks its events are about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "services/indexer/events/event_format.hpp"
#include "services/indexer/feed/feed_options.hpp"

namespace cenote::indexer {

/// Known before a publisher's first batch.
struct publisher_identity {
  std::string name;   ///< unique
  std::string pod;    ///< at most 256 B; of a node `node:<name>`
  std::string model;  ///< at most 256 B; may be empty
  std::string node;   ///< the node of this pod's machine, whose blocks are the pod's, too; empty: none
  event_engine engine = event_engine::automatic;
  publisher_kind kind = publisher_kind::engine;
  std::optional<clear_scope> cleared;  ///< what AllBlocksCleared empties; none: by engine
};

}  // namespace cenote::indexer
