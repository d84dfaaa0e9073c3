#include "simulation/formats/mooncake.hpp"

#include <simdjson.h>

#include "simulation/formats/members.hpp"

namespace cenote::formats {

bool mooncake::recognizes(const simdjson::dom::element& object) {
  return has(object, "hash_ids") && !has(object, "chat_id");
}

line_result mooncake::take(const simdjson::dom::element& object, std::uint64_t line, line_requests& target) {
  line_request request{.line = line, .first = target.ids.size()};
  for (const char* name : {"timestamp", "input_length", "hash_ids"}) {
    if (!has(object, name)) return bad("`" + std::string(name) + "` is missing");
  }
  if (auto ok = take_time(object, "timestamp", request); !ok) return ok;
  if (auto ok = take_tokens(object, "input_length", request.tokens); !ok) return ok;
  if (auto ok = take_ids(object, "hash_ids", id_form::natural, target.ids); !ok) return ok;
  request.count = target.ids.size() - request.first;
  target.requests.push_back(request);
  return {};
}

}  // namespace cenote::formats
