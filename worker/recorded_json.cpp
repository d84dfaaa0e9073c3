#include "worker/recorded_json.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace cenote {

namespace {

using nlohmann::json;

std::string digits_of(const std::vector<std::uint64_t>& ids) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(ids.size() * 16);
  for (const std::uint64_t id : ids) {
    for (int shift = 60; shift >= 0; shift -= 4) text.push_back(digits[id >> shift & 15]);
  }
  return text;
}

}  // namespace

result<std::string> recorded_json(const recorded_batch& answer, std::uint64_t node_started_ns) {
  if (const auto status = answer.status.get(); !status) return std::unexpected(status.error());
  json requests = json::array();
  for (std::size_t i = 0; i < answer.requests.size(); ++i) {
    const blocks::watched_request& each = answer.requests[i];
    requests.push_back({{"time_ns", answer.times_ns[i]},
                        {"instance", each.instance},
                        {"block_tokens", each.block_tokens},
                        {"cut", each.is_cut},
                        {"ids", digits_of(each.ids)}});
  }
  return json({{"recording", answer.recording},
               {"node_started_ns", node_started_ns},
               {"dropped", answer.dropped},
               {"more", answer.has_more},
               {"requests", std::move(requests)}})
      .dump();
}

}  // namespace cenote
