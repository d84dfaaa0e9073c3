// A replay's result as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "commands/replay/result.hpp"

namespace cenote::replay {

/// Bytes moved a second of processor time, beside memcpy's.
struct efficiency {
  double node = 0;     ///< of the node's processor time; 0: not known
  double library = 0;  ///< of the node's and the client library's together, generation and verification left out;
                       ///< 0 too when blocks are used in place
};
[[nodiscard]] efficiency efficiency_of(const replay_result& replay);

/// The table at the end of a replay.
[[nodiscard]] std::string summary_text(const replay_result& replay);

/// One object; sizes in bytes, times in seconds, latencies in microseconds.
[[nodiscard]] nlohmann::ordered_json summary_json(const replay_result& replay);

[[nodiscard]] std::string_view name_of(verify_mode mode) noexcept;
[[nodiscard]] std::string_view name_of(access_mode mode) noexcept;
/// "20x", "max"
[[nodiscard]] std::string speed_text(double speed);

}  // namespace cenote::replay
