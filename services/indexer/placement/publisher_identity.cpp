#include "services/indexer/placement/publisher_identity.hpp"

#include "core/text.hpp"
#include "services/indexer/events/event_adapter.hpp"

namespace cenote::indexer {

result<void> check_topic(std::string_view topic) {
  if (topic.size() > publisher_limits::topic_bytes) {
    return fail(error_code::invalid_argument, "a topic has " + std::to_string(topic.size()) + " bytes; it may have " +
                                                  std::to_string(publisher_limits::topic_bytes));
  }
  const event_topic parts = parse_topic(topic);
  if (auto checked = check_name("a topic's pod", parts.pod, publisher_limits::name_bytes); !checked) return checked;
  return check_name("a topic's model", parts.model, publisher_limits::name_bytes);
}

void complete_identity(publisher_identity& identity, std::string_view topic) {
  const event_topic parts = parse_topic(topic);
  if (identity.pod.empty()) identity.pod = parts.pod;
  if (identity.model.empty()) identity.model = parts.model;
  if (identity.pod.empty()) identity.pod = identity.name;
  const bool is_of_node = identity.engine == event_engine::cenote || is_node(identity.pod) || is_node(parts.pod);
  identity.kind = is_of_node ? publisher_kind::node : publisher_kind::engine;
  identity.clear = event_adapter(identity.engine).cleared_by(topic);
}

}  // namespace cenote::indexer
