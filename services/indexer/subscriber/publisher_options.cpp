// Texts of strangers become addresses only if they are plain.
#include "services/indexer/subscriber/publisher_options.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/endpoint.hpp"
#include "core/socket_address.hpp"
#include "core/text.hpp"

namespace cenote::indexer {

namespace {

constexpr std::size_t longest_host = 253;  // of the DNS
constexpr std::size_t longest_path = 100;  // of a Unix socket: 107 bytes in the kernel
constexpr std::string_view tcp_scheme = "tcp://", ipc_scheme = "ipc://", node_prefix = "node:";

bool is_plain_host(std::string_view host) noexcept {
  const auto is_plain = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '.' || letter == '-' || letter == '_';
  };
  return !host.empty() && host.size() <= longest_host && host.front() != '-' && std::ranges::all_of(host, is_plain);
}

bool is_v6_number(const std::string& host) {
  return host.find(':') != std::string::npos && numeric_address({.host = host, .port = 0}).has_value();
}

bool is_host(const std::string& host) {
  return is_plain_host(host) || is_v6_number(host);
}

result<void> check_endpoint(std::string_view subject, std::string_view text) {
  if (text.starts_with(tcp_scheme)) {
    const auto parsed = parse_endpoint(text.substr(tcp_scheme.size()));
    if (parsed && parsed->port != 0 && is_host(parsed->host)) return {};
  } else if (text.starts_with(ipc_scheme)) {
    const std::string_view path = text.substr(ipc_scheme.size());
    if (!path.empty() && path.size() <= longest_path && check_name(subject, path, longest_path)) return {};
  }
  return fail(error_code::invalid_argument,
              std::string(subject) + " is `" + printable(cut_text(text, publisher_limits::name_bytes)) +
                  "`; it has to be tcp://HOST:PORT, tcp://[ADDRESS]:PORT or ipc://PATH with up to " +
                  std::to_string(longest_path) + " bytes");
}

}  // namespace

result<void> check_publisher(const publisher_options& options) {
  if (options.name.empty()) return fail(error_code::invalid_argument, "a publisher has no name; give it one");
  const std::array<std::pair<std::string_view, const std::string&>, 4> names{{
      {"the publisher's name", options.name},
      {"the publisher's pod", options.pod},
      {"the publisher's model", options.model},
      {"the publisher's node", options.node},
  }};
  for (const auto& [subject, name] : names) {
    if (auto checked = check_name(subject, name, publisher_limits::name_bytes); !checked) return checked;
  }
  const std::string subject = "endpoint of publisher `" + options.name + "`";
  if (auto checked = check_endpoint(subject, options.endpoint); !checked) return checked;
  if (options.replay.empty()) return {};
  return check_endpoint("replay " + subject, options.replay);
}

std::optional<std::string> replay_endpoint_of(std::string_view pod, std::uint16_t port) {
  if (port == 0) return std::nullopt;
  if (is_node(pod)) pod.remove_prefix(node_prefix.size());
  std::string host(pod);
  if (!is_host(host)) {
    const auto parsed = parse_endpoint(pod);
    if (!parsed || !is_host(parsed->host)) return std::nullopt;
    host = parsed->host;
  }
  return std::string(tcp_scheme) + endpoint{.host = host, .port = port}.text();
}

}  // namespace cenote::indexer
