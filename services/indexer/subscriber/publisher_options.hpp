// Settings of one publisher, and which addresses it may have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "services/indexer/events/event_format.hpp"
#include "services/indexer/placement/publisher_identity.hpp"

namespace cenote::indexer {

/// A publisher that the subscriber connects to (`publishers.<name>`): an engine, or a node
/// with a row of numbers for each topic.
struct publisher_options {
  std::string name{};
  std::string endpoint{};  ///< of its PUB socket: tcp://HOST:PORT, tcp://[IPv6]:PORT or ipc://PATH
  std::string replay{};    ///< of its ROUTER socket, in the same form; empty: what is missed is lost
  std::string pod{};       ///< empty: of its topic
  std::string model{};     ///< empty: of its topic
  std::string node{};
  event_engine engine = event_engine::automatic;
  std::optional<clear_scope> clear{};  ///< none: as its engine has it

  friend bool operator==(const publisher_options&, const publisher_options&) = default;
};

/// Errors: invalid_argument. Thread-safe, waits for nothing.
[[nodiscard]] result<void> check_publisher(const publisher_options& options);

/// The address at which a pod that connected to a bound endpoint is asked for replays: "tcp://HOST:PORT".
///
/// A topic comes from any process that reaches the endpoint. So nothing of it but a plain host name or number, with or
/// without a port that is not used, is ever connected to, and only at `port`, which is configured; anything else, a
/// path or another transport, is none. "node:NAME" is the host NAME.
[[nodiscard]] std::optional<std::string> replay_endpoint_of(std::string_view pod, std::uint16_t port);

}  // namespace cenote::indexer
