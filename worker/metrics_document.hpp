// The page docs/metrics.md, written from the tables of figures.
#pragma once

#include <string>

namespace cenote {

/// The whole page: all families of /metrics, and what only status has.
[[nodiscard]] std::string document_metrics();

}  // namespace cenote
