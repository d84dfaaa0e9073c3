// The worker process: all threads, all actors.
#pragma once

#include "config/sources.hpp"

namespace cenote {

struct worker_options {
  int keeper_fd = -1;              ///< inherited from the keeper
  config::config_sources sources;  ///< kept: SIGHUP loads them again
};

/// Serves until the keeper says otherwise. The exit status is as transport/local/keeper_link.hpp has it: 0 drained or
/// handed over, 1 failed, 2 the configuration can never work.
int run_worker(const worker_options& options);

}  // namespace cenote
