// Choices that configuration, tiers and clients share: one enum a concept.
#pragma once

#include <cstdint>

#include "core/enum_names.hpp"

namespace cenote {

/// When a block is written to the tier below.
enum class ingest : std::uint8_t {
  none,    ///< never: what is there already is read
  all,     ///< when it is stored
  hot,     ///< when it was read often
  evicted  ///< when it leaves
};
CENOTE_ENUM_NAMES(ingest, none, all, hot, evicted);

/// Of an instance group: no block goes while a group of a lower class has one that can.
enum class priority : std::uint8_t { low, normal, high };
CENOTE_ENUM_NAMES(priority, low, normal, high);

/// When a prefetch is answered, if not all of it came before. The numbers are part of the protocol.
enum class prefetch_policy : std::uint8_t {
  node_default = 0,   ///< as the node's configuration says
  best_effort = 1,    ///< when the engine says that it is ready to compute
  wait_complete = 2,  ///< never, but for the node's limit of a minute
  timeout = 3,        ///< base + per_ki_token x tokens / 1024 after it was asked for
};
CENOTE_ENUM_NAMES(prefetch_policy, node_default, best_effort, wait_complete, timeout);

/// How disks are read and written.
enum class engine_kind : std::uint8_t {
  automatic,  ///< io_uring, or threads where it is forbidden
  io_uring,
  threads,
};
CENOTE_ENUM_NAMES(engine_kind, automatic, io_uring, threads);

}  // namespace cenote
