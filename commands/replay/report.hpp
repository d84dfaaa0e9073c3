// A replay's result as a page.
#pragma once

#include <string>

#include "commands/replay/result.hpp"

namespace cenote::replay {

/// One HTML file that needs nothing else: figures, and plots as SVG; light or dark as the reader's system is.
[[nodiscard]] std::string report_html(const replay_result& replay);

}  // namespace cenote::replay
