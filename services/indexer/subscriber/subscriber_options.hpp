// Options of a subscriber: its bound endpoints, its bounds and its times.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/events/event_format.hpp"
#include "services/indexer/feed/feed_options.hpp"
#include "services/indexer/feed/feeds.hpp"

namespace cenote::indexer {

struct subscriber_options {
  std::vector<std::string> bind{};  ///< `events.bind`: endpoints at which publishers connect
  std::string topic = "kv@";        ///< `events.topic`: of publishers at bound endpoints, what theirs begin with
  event_engine engine = event_engine::automatic;  ///< `events.engine`: of those publishers
  std::uint32_t ranks = 1;                        ///< `events.ranks`: ports of each bound endpoint, its own the first
  std::uint16_t replay_port = 5558;               ///< `events.replay_port`: + rank, at a pod's host; 0: no replays

  feed_options feed{};    ///< of each publisher; `kind` and `has_replay` are its own
  feeds_options feeds{};  ///< of all

  std::size_t waiting_commands = 4096;         ///< calls of add() and remove() that the thread has not carried out
  int live_messages = 32;                      ///< of each connection that wait unread; more wait at the publisher
  int replay_messages = 16'384;                ///< of an answer that wait unread; an engine keeps 10,000
  std::size_t turn_messages = 64;              ///< of one socket, before the others have their turn
  std::size_t turn_bytes = 8UZ << 20U;         ///< the same in bytes
  std::chrono::milliseconds tick{100};         ///< between calls of batch_sink::advance()
  std::chrono::milliseconds table_pause{250};  ///< between two tables of publishers, at least
  std::chrono::milliseconds identity_pause{30'000};  ///< between two changes of one publisher's pod or model
  std::chrono::milliseconds retention{3'600'000};    ///< absent publishers of bound endpoints end after that
};

/// Most ports of one bound endpoint.
inline constexpr std::uint32_t most_ranks = 1024;

/// The endpoints to bind: each of `bind` with its ranks, "tcp://*:5557", "tcp://*:5558", … Port `*` or 0: a free one
/// for each. Errors: invalid_argument.
struct ranked_endpoint {
  std::string endpoint{};
  std::uint32_t rank = 0;
};
[[nodiscard]] result<std::vector<ranked_endpoint>> bound_endpoints_of(const subscriber_options& options);

}  // namespace cenote::indexer
