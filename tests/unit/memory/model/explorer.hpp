// Breadth-first search through every order of steps: the first counterexample found is a shortest one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/memory/model/protocol.hpp"

namespace cenote::model {

struct exploration {
  violation broken = violation::none;
  std::vector<std::string> trace;  ///< the counterexample, a line per step; empty when nothing broke
  std::size_t states = 0;
  std::size_t resting_states = 0;  ///< states in which nothing could run any more
  std::uint32_t events = 0;
  bool complete = false;  ///< false when a violation or `state_limit` ended the search
};

/// Visits every reachable state of `with`, or stops at the first violation. Visited states are remembered by
/// a 64-bit fingerprint: for 10 M states the chance that any two collide is 3e-6.
exploration explore(const scenario& with, std::size_t state_limit = 40'000'000);

}  // namespace cenote::model
