// Recorded requests as an operator reads them.
#pragma once

#include <cstdint>
#include <string>

#include "actors/messages.hpp"
#include "core/error.hpp"

namespace cenote {

/// An object: `recording` (its number), `node_started_ns` (since 1970; another one: instances are numbered anew),
/// `dropped` (requests since it began), `more` (others wait), and `requests`: `time_ns` since it began, `instance` (its
/// number), `block_tokens` (0: its spec names none), `cut` (only the first and last blocks are named), `ids` (16
/// hexadecimal digits a block). Errors: those of the answer. Thread-safe.
[[nodiscard]] result<std::string> recorded_json(const recorded_batch& answer, std::uint64_t node_started_ns);

}  // namespace cenote
