// Signals of a service's program.
#pragma once

#include <csignal>

namespace cenote {

/// Blocks the signals that the main thread waits for, in it and in all threads that it starts, and gives them.
sigset_t block_service_signals();

/// The next of these signals; 0 after half a second without one.
int next_service_signal(const sigset_t& signals);

}  // namespace cenote
