#include "simulation/formats/mooncake.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "simulation/formats/members.hpp"

namespace cenote::formats {

namespace {

using simdjson::SUCCESS;
using simdjson::dom::element;

constexpr double most_delay_ms = 1e12;

/// A turn without a time comes its delay behind the one before it.
line_result take_clock(const element& object, std::optional<std::uint32_t> session, line_request& request) {
  const auto has_time = [&](const time_name& each) { return has(object, each.name); };
  if (std::ranges::any_of(time_names, has_time)) return take_time(object, time_names, request);
  request.source = line_request::time_source::none;
  if (!session || !has(object, "delay")) return {};
  const auto delay = number_member(object, "delay");
  if (!delay || !(*delay >= 0 && *delay < most_delay_ms)) return bad("`delay` is no number of milliseconds");
  request.source = line_request::time_source::delay;
  request.time = *delay;
  return {};
}

}  // namespace

bool mooncake::recognizes(const element& object) {
  return (!present_name(object, id_names).empty() && !has(object, "chat_id")) || has(object, "turns");
}

line_result mooncake::take(const element& object, std::uint64_t line, line_requests& target) {
  const auto session = session_of(object, target.naming);
  simdjson::dom::array turns;
  if (object["turns"].get(turns) != SUCCESS) return take_turn(object, line, session, target);
  const std::uint32_t number = session.value_or(next_session_);
  if (!session) ++next_session_;
  for (const element turn : turns) {
    if (!turn.is_object()) return bad("`turns` holds something else than objects");
    if (auto ok = take_turn(turn, line, number, target); !ok) return ok;
  }
  return {};
}

line_result mooncake::take_turn(const element& object, std::uint64_t line, std::optional<std::uint32_t> session,
                                line_requests& target) {
  line_request request{.line = line, .first = target.ids.size()};
  const std::string_view tokens = present_name(object, token_names);
  const std::string_view ids = present_name(object, id_names);
  if (tokens.empty()) return bad(fmt::format("`{}` is missing", token_names.front()));
  if (ids.empty()) return bad(fmt::format("`{}` is missing", id_names.front()));
  if (auto ok = take_clock(object, session, request); !ok) return ok;
  if (auto ok = take_tokens(object, tokens, request.tokens); !ok) return ok;
  if (auto ok = take_ids(object, ids, target, &texts_); !ok) return ok;
  request.count = target.ids.size() - request.first;
  request.session = session.value_or(0);
  target.requests.push_back(request);
  return {};
}

std::optional<std::uint32_t> mooncake::session_of(const element& object, key_naming naming) {
  const auto word = word_member(object, "session_id");
  const auto text = text_member(object, "session_id");
  if (!word && !text) return std::nullopt;
  if (naming == key_naming::hashed) return next_session_;
  const std::string name = text ? std::string(*text) : fmt::format("{}", *word);
  const auto [found, is_new] = sessions_.try_emplace(name, next_session_);
  if (is_new) ++next_session_;
  return found->second;
}

}  // namespace cenote::formats
