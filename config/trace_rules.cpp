#include "config/trace_rules.hpp"

#include <algorithm>
#include <utility>

namespace cenote::config {

result<collector_place> parse_collector(std::string_view text) {
  constexpr std::string_view usual_target = "/v1/traces", after_scheme = "://";
  // The first line of a request holds no others.
  const bool is_plain = std::ranges::all_of(text, [](char each) { return each > ' ' && each < '\x7f' && each != '#'; });
  if (!is_plain || text.find('@') != std::string_view::npos)
    return fail(error_code::invalid_argument, "has characters that no address of a collector has");
  const std::size_t scheme = text.find(after_scheme);
  const std::size_t path = scheme == std::string_view::npos ? scheme : text.find('/', scheme + after_scheme.size());
  auto server = parse_web_server(text.substr(0, path));
  if (!server || server->address.port == 0)
    return fail(error_code::invalid_argument, "must be http://HOST:PORT/v1/traces, or https:// with trace.ca");
  return collector_place{std::move(*server),
                         std::string(path == std::string_view::npos ? usual_target : text.substr(path))};
}

}  // namespace cenote::config
