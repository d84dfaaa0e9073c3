// Ports of ranks are counted on from the one that is configured, as engines do.
#include "services/indexer/subscriber/subscriber_options.hpp"

#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "core/text.hpp"

namespace cenote::indexer {

namespace {

std::unexpected<error> fail_bind(std::string_view endpoint, std::string_view reason) {
  return fail(error_code::invalid_argument,
              "events.bind has `" + printable(cut_text(endpoint, 256)) + "`: " + std::string(reason));
}

result<void> append_ranks(std::string_view endpoint, std::uint32_t ranks, std::vector<ranked_endpoint>& all) {
  const std::size_t colon = endpoint.rfind(':');
  const std::string_view start = endpoint.substr(0, colon + 1), port_text = endpoint.substr(colon + 1);
  std::uint32_t port = 0;
  if (port_text != "*") {
    const auto read = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
    if (read.ec != std::errc() || read.ptr != port_text.data() + port_text.size())
      return fail_bind(endpoint, "its port has to be a number, as in tcp://*:5557");
  }
  if (port + (ranks - 1) > std::numeric_limits<std::uint16_t>::max())
    return fail_bind(endpoint, "ports end at 65535; events.ranks has to be smaller");
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::string text(start);
    text += port == 0 ? "*" : std::to_string(port + rank);
    all.push_back({.endpoint = std::move(text), .rank = rank});
  }
  return {};
}

}  // namespace

result<std::vector<ranked_endpoint>> bound_endpoints_of(const subscriber_options& options) {
  if (options.ranks == 0 || options.ranks > most_ranks) {
    return fail(error_code::invalid_argument, "events.ranks is " + std::to_string(options.ranks) +
                                                  "; it has to be 1 to " + std::to_string(most_ranks));
  }
  std::vector<ranked_endpoint> all;
  for (const std::string& each : options.bind) {
    if (each.starts_with("ipc://")) {
      if (options.ranks != 1) return fail_bind(each, "a path has no ports, and events.ranks is above 1");
      all.push_back({.endpoint = each, .rank = 0});
    } else if (!each.starts_with("tcp://")) {
      return fail_bind(each, "it has to be tcp://HOST:PORT, tcp://*:PORT or ipc://PATH");
    } else if (auto added = append_ranks(each, options.ranks, all); !added) {
      return std::unexpected(added.error());
    }
  }
  return all;
}

}  // namespace cenote::indexer
