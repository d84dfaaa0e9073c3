#include "simulation/formats/bailian.hpp"

#include <simdjson.h>

#include <span>

#include "simulation/formats/members.hpp"

namespace cenote::formats {

bool bailian::recognizes(const simdjson::dom::element& object) {
  return has(object, "hash_ids") && has(object, "chat_id");
}

line_result bailian::take(const simdjson::dom::element& object, std::uint64_t line, line_requests& target) {
  line_request request{.line = line, .first = target.ids.size()};
  if (auto ok = take_time(object, "timestamp", request); !ok) return ok;
  if (auto ok = take_tokens(object, "input_length", request.tokens); !ok) return ok;
  if (auto ok = take_ids(object, "hash_ids", target); !ok) return ok;
  request.count = target.ids.size() - request.first;
  if (target.naming == key_naming::numbered) request.session = session_of(object);
  std::uint64_t parent_number = 0;
  for (std::uint64_t& id : std::span(target.ids).subspan(request.first)) {
    id = numbers_.number(parent_number, id, target.naming);
    parent_number = id;
  }
  target.requests.push_back(request);
  return {};
}

std::uint32_t bailian::session_of(const simdjson::dom::element& object) {
  const auto chat = word_member(object, "chat_id");
  const auto parent = word_member(object, "parent_chat_id");
  const auto begun = parent ? sessions_.find(*parent) : sessions_.end();
  const std::uint32_t session = begun == sessions_.end() ? next_session_++ : begun->second;
  if (chat) sessions_.insert_or_assign(*chat, session);
  return session;
}

}  // namespace cenote::formats
