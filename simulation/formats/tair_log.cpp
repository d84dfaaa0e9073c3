#include "simulation/formats/tair_log.hpp"

#include <simdjson.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "simulation/formats/members.hpp"

namespace cenote::formats {

namespace {

using simdjson::dom::element;

constexpr std::string_view read_type = "GetCacheLocation";
constexpr std::string_view start_type = "StartWriteCache";
constexpr std::string_view finish_type = "FinishWriteCache";
constexpr std::uint64_t unfinished_us = 100'000;

/// Leaves of `ids` those that were stored.
line_result keep_stored(const element& object, std::vector<std::uint64_t>& ids) {
  std::vector<bool> mask;
  if (auto ok = take_mask(object, "success_block", ids.size(), mask); !ok) return ok;
  std::vector<std::uint64_t> stored;
  for (std::size_t place = 0; place < mask.size(); ++place) {
    if (mask[place]) stored.push_back(ids[place]);
  }
  ids = std::move(stored);
  return {};
}

}  // namespace

bool tair_log::recognizes(const element& object) {
  const auto type = text_member(object, "type");
  return type == read_type || type == start_type || type == finish_type;
}

line_result tair_log::take(const element& object, std::uint64_t line, line_requests& target) {
  line_request request{.line = line, .first = target.ids.size()};
  const auto type = text_member(object, "type");
  if (!type) return bad("`type` is missing, or no text");
  if (!recognizes(object)) return {};  // another event, which is no request
  std::string_view instance;
  if (auto ok = take_instance(object, "source", instance); !ok) return ok;
  if (auto ok = take_time(object, "trigger_time_us", request); !ok) return ok;
  if (*type == finish_type) return take_finish(object, request, target);
  if (auto ok = take_ids(object, "keys", target); !ok) return ok;
  request.instance = names_.number(instance, target);
  request.count = target.ids.size() - request.first;
  request.tokens = request.count * target.block_tokens;
  names_.separate(request.instance, target, request.first);
  return *type == read_type ? take_read(object, request, target) : take_start(object, request, target);
}

line_result tair_log::take_read(const element& object, line_request request, line_requests& target) {
  if (text_member(object, "query_type").value_or("prefix_match") != "prefix_match") {
    return bad("`query_type` is another one than prefix_match");
  }
  if (auto ok = take_leading(object, engine_mask, request.count, request.engine_blocks); !ok) return ok;
  request.access = simulation::chain_access::read;
  target.requests.push_back(request);
  return {};
}

line_result tair_log::take_start(const element& object, line_request request, line_requests& target) {
  const auto session = text_member(object, "write_session_id");
  if (!session) return bad("`write_session_id` is missing, or no text");
  begun_write write{.request = request, .ids = {}};
  const auto first = target.ids.begin() + static_cast<std::ptrdiff_t>(request.first);
  write.ids.assign(first, target.ids.end());
  target.ids.resize(request.first);
  if (!writes_.try_emplace(std::string(*session), std::move(write)).second) {
    return bad("this `write_session_id` was started before");
  }
  return {};
}

line_result tair_log::take_finish(const element& object, line_request request, line_requests& target) {
  const auto session = text_member(object, "write_session_id");
  if (!session) return bad("`write_session_id` is missing, or no text");
  const auto begun = writes_.find(std::string(*session));
  if (begun == writes_.end()) return bad("no StartWriteCache has this `write_session_id`");
  begun_write write = std::move(begun->second);
  writes_.erase(begun);
  if (auto ok = keep_stored(object, write.ids); !ok) return ok;
  request.instance = write.request.instance;
  store(write, request, target);
  return {};
}

void tair_log::end(line_requests& target) {
  std::vector<begun_write> unfinished;
  unfinished.reserve(writes_.size());
  for (auto& each : writes_) unfinished.push_back(std::move(each.second));
  writes_.clear();
  std::ranges::sort(unfinished, {}, [](const begun_write& write) { return write.request.line; });
  for (const begun_write& each : unfinished) {
    line_request request = each.request;
    request.first = target.ids.size();
    request.time += static_cast<double>(unfinished_us);
    if (request.is_whole) request.whole += std::min(unfinished_us, ~std::uint64_t{0} - request.whole);
    store(each, request, target);
  }
}

void tair_log::store(const begun_write& write, line_request request, line_requests& target) {
  if (write.ids.empty()) return;
  request.access = simulation::chain_access::write;
  request.count = write.ids.size();
  request.tokens = request.count * target.block_tokens;
  target.ids.insert(target.ids.end(), write.ids.begin(), write.ids.end());
  target.requests.push_back(request);
}

}  // namespace cenote::formats
