#include "simulation/formats/tair_schema.hpp"

#include <simdjson.h>

#include <algorithm>

#include "simulation/formats/members.hpp"

namespace cenote::formats {

using simulation::chain_access;

namespace {

constexpr std::array<time_name, 4> times{{{"timestamp_us"},
                                          {"timestamp_ns", time_unit::nanoseconds},
                                          {"timestamp_ms", time_unit::milliseconds},
                                          {"timestamp", time_unit::automatic}}};

}  // namespace

bool tair_schema::recognizes(const simdjson::dom::element& object) {
  return has(object, "keys") && has(object, "instance_id");
}

line_result tair_schema::take(const simdjson::dom::element& object, std::uint64_t line, line_requests& target) {
  line_request asked{.line = line, .first = target.ids.size()};
  std::string_view instance;
  if (auto ok = take_instance(object, "instance_id", instance); !ok) return ok;
  if (text_member(object, "query_type").value_or("prefix_match") != "prefix_match") {
    return bad("`query_type` is another one than prefix_match");
  }
  if (auto ok = take_time(object, times, asked); !ok) return ok;
  if (auto ok = take_ids(object, "keys", target); !ok) return ok;
  asked.count = target.ids.size() - asked.first;
  asked.tokens = asked.count * target.block_tokens;
  if (has(object, "input_len")) {
    if (auto ok = take_tokens(object, "input_len", asked.tokens); !ok) return ok;
  }
  line_request stored = asked;
  if (auto ok = take_leading(object, engine_mask, asked.count, asked.engine_blocks); !ok) return ok;
  stored.first = target.ids.size();
  if (has(object, "total_keys")) {
    if (auto ok = take_ids(object, "total_keys", target); !ok) return ok;
  }
  stored.count = target.ids.size() - stored.first;
  stored.tokens = stored.count * target.block_tokens;
  asked.instance = stored.instance = names_.number(instance, target);
  names_.separate(asked.instance, target, asked.first);
  const std::span keys = std::span(target.ids).subspan(asked.first);
  if (stored.count == 0 || std::ranges::equal(keys.first(asked.count), keys.subspan(asked.count))) {
    target.ids.resize(stored.first);
    target.requests.push_back(asked);
    return {};
  }
  asked.access = chain_access::read;
  stored.access = chain_access::write;
  target.requests.push_back(asked);
  target.requests.push_back(stored);
  return {};
}

}  // namespace cenote::formats
