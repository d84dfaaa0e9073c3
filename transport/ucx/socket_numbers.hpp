// The calls of UCX for its sockets: numbers that do not come back soon, and connections of members alone.
#pragma once

namespace cenote::ucx {

/// UCX 1.13 keeps the number of a socket for which something came while it was busy. If that socket is closed before it
/// looks again, and a new one got the number, the new one gets the event: UCX then aborts the process
/// (github.com/openucx/ucx/pull/11458 mends a part of that). So in a program that this function is linked into
/// `accept` and `socket` give what UCX opens a number that nothing had for a long time. There are as many such numbers
/// as half of the descriptors that the process may have: what is accepted beyond them is closed, so that the other half
/// is left to engines and operators.
///
/// The first thing that UCX sends on a connection that it dialled goes out behind a proof (connection_proof.hpp), and
/// of the connections to its listening sockets it gets those that have shown one. Does nothing itself.
void use_own_socket_calls() noexcept;

}  // namespace cenote::ucx
