// Facts about a publisher that decide whose blocks its events are about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "services/indexer/events/event_format.hpp"
#include "services/indexer/events/event_topic.hpp"
#include "services/indexer/feed/feed_options.hpp"

namespace cenote::indexer {

/// Bounds of the texts that name a publisher.
struct publisher_limits {
  static constexpr std::size_t topic_bytes = 512;
  static constexpr std::size_t name_bytes = 256;  ///< of a publisher, a pod, a model, a node
};

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

/// Whether pod and model of a topic may be shown: lengths, UTF-8, no control characters; they may be empty. Errors:
/// invalid_argument.
[[nodiscard]] result<void> check_topic(std::string_view topic);

/// Sets what follows from the topic and what is set already (`engine`; the pod and the model that are not empty): pod
/// and model, the kind of the publisher, and which media AllBlocksCleared empties. A pod that nothing names is `name`.
void complete_identity(publisher_identity& identity, std::string_view topic);

}  // namespace cenote::indexer
