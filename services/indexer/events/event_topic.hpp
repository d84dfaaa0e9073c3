// Topics of KV events, `kv@<pod>@<model>` (vLLM's `--kv-events-config`, llm-d's convention).
#pragma once

#include <cstdint>
#include <string_view>

namespace cenote::indexer {

/// A topic's parts; views of it.
struct event_topic {
  std::string_view pod;
  std::string_view model;  ///< empty if the topic has no three parts

  friend bool operator==(const event_topic&, const event_topic&) = default;
};

/// The pod and model of a topic that has three parts, the first one `kv`; otherwise the whole topic is the pod.
/// Thread-safe.
[[nodiscard]] event_topic parse_topic(std::string_view topic) noexcept;

/// True for the pod of a Cenote node's own publisher, `node:<name>`. Thread-safe.
[[nodiscard]] bool is_node(std::string_view pod) noexcept;

}  // namespace cenote::indexer
