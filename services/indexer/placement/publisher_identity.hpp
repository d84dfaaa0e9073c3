// Facts about a publisher that decide whose blocks its events are about.
#pragma once

#include <cstdint>
#include <string>

#include "services/indexer/events/event_format.hpp"
#include "services/indexer/feed/feed_options.hpp"

namespace cenote::indexer {

/// The publisher behind an id; the same as long as the id is open.
struct publisher_identity {
  std::string name{};   ///< as configured; at a bound endpoint the endpoint and the topic, "tcp://0.0.0.0:5557/kv@a@m"
  std::string pod{};    ///< as configured, else of its topic, else its name
  std::string model{};  ///< as configured, else of its topic; may be empty
  std::string node{};   ///< whose blocks are its own, too; empty: none
  std::string endpoint{};  ///< of its live batches
  event_engine engine{};
  clear_scope clear{};  ///< media that AllBlocksCleared empties
  publisher_kind kind{};
  std::uint32_t rank = 0;  ///< of the port among those of one bound endpoint; no rank of an engine
};

}  // namespace cenote::indexer
