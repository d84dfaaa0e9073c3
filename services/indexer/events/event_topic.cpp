#include "services/indexer/events/event_topic.hpp"

namespace cenote::indexer {

event_topic parse_topic(std::string_view topic) noexcept {
  constexpr std::string_view prefix = "kv@";
  const event_topic whole{.pod = topic, .model = {}};
  if (!topic.starts_with(prefix)) return whole;
  const std::string_view rest = topic.substr(prefix.size());
  const std::size_t at = rest.find('@');
  if (at == std::string_view::npos || rest.find('@', at + 1) != std::string_view::npos) return whole;
  return {.pod = rest.substr(0, at), .model = rest.substr(at + 1)};
}

bool is_node(std::string_view pod) noexcept {
  return pod.starts_with("node:");
}

}  // namespace cenote::indexer
