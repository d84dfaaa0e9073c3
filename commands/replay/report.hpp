// A replay's outcome as a page.
#pragma once

#include <string>

#include "commands/replay/outcome.hpp"

namespace cenote::replay {

/// One HTML file that needs nothing else: figures, and plots as SVG; light or dark as the reader's system is.
[[nodiscard]] std::string report_html(const outcome& of);

}  // namespace cenote::replay
