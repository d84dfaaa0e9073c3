// The first bytes of each TCP connection between nodes, before those of UCX: a proof that the dialler knows the
// cluster's secret. UCX 1.13 takes the first bytes for a length, and aborts its process over some of them.
#pragma once

#include <cstdint>

#include "transport/peer/handshake.hpp"

namespace cenote::ucx {

/// The secret that the connections of this process show and demand, from now on. Before the first call it is the empty
/// one, which is no secret. Thread-safe.
void use_connection_secret(const peer::secret& shared);

/// Connections that showed no proof, or a wrong one, since the process started. Thread-safe.
[[nodiscard]] std::uint64_t connections_without_proof() noexcept;

/// Sends the proof on a connected socket, which has not sent a byte, with what is sent next. False: nothing was sent,
/// errno has the reason.
[[nodiscard]] bool show_proof(int socket) noexcept;

/// Takes the proof off a socket that was accepted, and waits for nothing: the kernel hands over connections with their
/// first bytes (hold_silent_connections()). False: there is none that is right; the bytes are still there.
[[nodiscard]] bool take_proof(int socket) noexcept;

/// From now on the kernel keeps connections to a listening socket that have sent nothing, without descriptors, and
/// hands them over as they are after three seconds. False: errno has the reason.
[[nodiscard]] bool hold_silent_connections(int listening) noexcept;

}  // namespace cenote::ucx
