// Work that all processors share while nothing else runs: at a process's start.
#pragma once

#include <cstddef>
#include <functional>

namespace cenote {

/// Calls `work(i)` once for each i below `count` and returns when all calls have ended. The caller's thread is one of
/// those that call, beside one for each further processor, eight at most; a machine that has no thread to give leaves
/// the work to those that there are. The order is any; `work` must be thread-safe and must not throw.
void run_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace cenote
