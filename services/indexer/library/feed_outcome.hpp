// Answers of an index to the batches that a program gives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/enum_names.hpp"
#include "services/indexer/feed/feed_commands.hpp"

namespace cenote::indexer {

/// The fate of one batch.
enum class batch_fate : std::uint8_t {
  applied,
  repeated,    ///< it was there already
  waiting,     ///< batches before it are missing, or an answer is awaited: it is applied behind them
  unreadable,  ///< it, or a removal in it, made no sense: its publisher's blocks went, since some may be gone
  dropped,     ///< it is too large, or there was no room for it to wait
  late,        ///< of a replay that is over: not looked at
};
CENOTE_ENUM_NAMES(batch_fate, applied, repeated, waiting, unreadable, dropped, late);

/// Batches that a publisher is to be asked for. The answer is what its replay socket sends: from `start` on, without a
/// hole, to its newest batch; with `snapshot` all that it has, in batches without numbers.
struct replay_ask {
  std::uint64_t number = 0;  ///< of the question; its answer has it, too
  std::uint64_t start = 0;
  bool is_snapshot = false;
};

/// A question, and the topic that it is about.
struct topic_ask {
  std::string_view topic;  ///< until the topic is closed
  replay_ask ask{};
};

struct feed_outcome {
  batch_fate fate = batch_fate::late;
  std::uint64_t applied = 0;              ///< batches that went into the index, those that had waited among them
  std::optional<clear_reason> cleared{};  ///< all blocks of the publisher went, for this reason
  std::uint64_t missing_first = 0;        ///< numbers between this batch and the one before
  std::uint64_t missing = 0;              ///< how many; 0: none
  std::optional<replay_ask> ask{};        ///< a new question; each is given once, here or by next_ask()
  publisher_state state = publisher_state::connecting;
};

}  // namespace cenote::indexer
