// The rules of the indexer's keys together.
#pragma once

#include "config/node_config.hpp"
#include "core/error.hpp"

namespace cenote::config {

/// Whether an indexer can start with these keys; a node does not ask. Errors: invalid_config, which names the key that
/// is set, its place, and what would be right.
[[nodiscard]] result<> check_indexer(const node_config& config);

}  // namespace cenote::config
