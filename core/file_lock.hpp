// A file's lock, taken when an earlier holder lets go of it.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "core/error.hpp"

namespace cenote {

/// Takes flock(2) `mode` (LOCK_EX or LOCK_SH) on `descriptor`, and asks again while somebody else has it. Blocks for up
/// to `patience`. False: it is somebody else's still. `while_held` is called after each refusal and may end the wait
/// with an error. The kernel ends a lock with the last descriptor of its open file description, whatever the process
/// dies of. Errors: those of `while_held`; `system`, with `path` as the file's name.
[[nodiscard]] result<bool> lock_file(
    int descriptor, int mode, const std::string& path, std::chrono::milliseconds patience,
    const std::function<result<void>()>& while_held = [] { return result<void>(); });

}  // namespace cenote
