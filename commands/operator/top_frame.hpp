// What `cenote top` draws: a node's status, and how it changed since the last look.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace cenote {

/// How a frame is drawn.
struct frame_style {
  std::size_t columns = 100;  ///< longer lines are cut
  std::size_t rows = 0;       ///< of the terminal, more are left out; 0: no bound
  bool colours = false;       ///< ANSI
};

/// The lines of one frame. `before`: the status of `seconds` ago, whence the rates; null: there is none, and rates are
/// left out. What the node does not say is left out. Thread-safe.
[[nodiscard]] std::string top_frame(const nlohmann::json& now, const nlohmann::json& before, double seconds,
                                    const frame_style& style);

}  // namespace cenote
