// Numbers for the sockets of UCX that do not come back soon.
#pragma once

namespace cenote::ucx {

/// UCX 1.13 keeps the number of a socket for which something came while it was busy. If that socket is closed before it
/// looks again, and a new one got the number, the new one gets the event: UCX then aborts the process
/// (github.com/openucx/ucx/pull/11458 mends a part of that). So in a program that this function is linked into
/// `accept` and `socket` give what UCX opens a number that nothing had for a long time. Does nothing itself.
void use_fresh_socket_numbers() noexcept;

}  // namespace cenote::ucx
