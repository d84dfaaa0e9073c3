// The address at which a node's pages are served over HTTP.
#pragma once

#include <string>

namespace cenote {

struct metrics_place {
  std::string address{};  ///< HOST:PORT; empty: none
  std::string problem{};  ///< the reason why it is none, though one is configured
};

}  // namespace cenote
