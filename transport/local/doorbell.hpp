// How the node wakes a client: a socket pair, of which each side holds one end.
//
// Not an eventfd: both sides would share one open file description, and a client that clears its O_NONBLOCK would make
// the node's write block.
#pragma once

#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote::local {

struct doorbell {
  unique_fd bell;  ///< the node's end
  unique_fd ear;   ///< the client's end, non-blocking; the node gives it away and keeps no copy
};

/// Errors: system.
[[nodiscard]] result<doorbell> make_doorbell();

/// True when the descriptor is a bell as make_doorbell() makes them.
[[nodiscard]] bool is_doorbell(int bell) noexcept;

/// Wakes whoever polls the other end. Never blocks: when the socket is full, the peer has wake-ups that it did not
/// read.
void ring_doorbell(int bell) noexcept;

/// Reads all that was rung so far, so that poll() waits for the next. Never blocks.
void hear_doorbell(int ear) noexcept;

}  // namespace cenote::local
