// How the node wakes a client: a socket pair, of which each side holds one end.
//
// Not an eventfd: a description that both sides hold has flags that both may change, so that a client could make the
// node's own write block.
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

/// Wakes whoever polls the other end. Never blocks: one that does not listen was told often enough.
void ring_doorbell(int bell) noexcept;

/// Forgets the rings so far. Never blocks.
void hear_doorbell(int ear) noexcept;

}  // namespace cenote::local
