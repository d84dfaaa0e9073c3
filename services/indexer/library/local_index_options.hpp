// Options of an index within a program, and of the publishers in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/enum_names.hpp"
#include "services/indexer/events/event_format.hpp"
#include "services/indexer/feed/feed_options.hpp"
#include "services/indexer/keys/token_processor.hpp"

namespace cenote::indexer {

/// The questions that a program can answer.
enum class replay_source : std::uint8_t {
  none,      ///< what is missed is lost: the publisher's blocks go, and it is degraded
  replays,   ///< batches from a number on
  snapshots  ///< and snapshots, as nodes of Cenote have them
};
CENOTE_ENUM_NAMES(replay_source, none, replays, snapshots);

/// The defaults are those of the service's keys of the same names.
struct local_index_options {
  std::size_t memory = std::size_t{2} << 30;       ///< bytes, a hard bound; at least forest::least_memory
  key_chain key = key_chain::xxh3;                 ///< `index.key`
  std::uint32_t block_tokens = 0;                  ///< `index.block_tokens`; 0: each publisher's own
  std::string seed{};                              ///< `index.seed`; empty with xxh3: a random one
  event_engine engine = event_engine::automatic;   ///< `events.engine`, where a publisher has none of its own
  std::map<std::string, double> weights{};         ///< `scoring.weights`; empty: those of medium_weights
  replay_source replays = replay_source::replays;  ///< the questions that feed() may give back
  feed_options feed{};                             ///< bounds and times; `kind` and `has_replay` are the publisher's
  std::size_t publishers = 65'536;                 ///< further topics are refused
};

/// Facts about the publisher of a topic that the topic does not name.
struct topic_settings {
  std::string pod{};                     ///< empty: the topic's
  std::string model{};                   ///< empty: the topic's
  std::string node{};                    ///< whose blocks are its own, too
  std::optional<event_engine> engine{};  ///< none: the index's
  std::optional<clear_scope> clear{};    ///< none: as its engine has it
};

}  // namespace cenote::indexer
