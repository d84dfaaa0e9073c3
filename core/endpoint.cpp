#include "core/endpoint.hpp"

#include <charconv>

namespace cenote {

std::string endpoint::text() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

result<endpoint> parse_endpoint(std::string_view text) {
  const auto colon = text.rfind(':');
  endpoint parsed;
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    const auto read = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
    const bool whole = !port.empty() && read.ec == std::errc() && read.ptr == port.data() + port.size();
    const bool is_v6 = host.starts_with('[') && host.ends_with(']');
    if (is_v6) host = host.substr(1, host.size() - 2);
    parsed.host = host;
    if (whole && !host.empty() && (is_v6 || host.find(':') == std::string_view::npos)) return parsed;
  }
  return fail(error_code::invalid_argument, "must be HOST:PORT, as in 127.0.0.1:9400 or [::1]:9400");
}

}  // namespace cenote
