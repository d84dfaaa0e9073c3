// `cenote quickstart`.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

/// Runs a node, which is gone afterwards, and two engine processes on it that ask made prompts; prints what the cache
/// gave, and what to do next. With --json: {requests, engines, tokens, hit_tokens, hit_ratio, bytes_read, bytes_stored,
/// seconds, wrong_blocks, verified_bytes}.
void add_quickstart(CLI::App& app);

}  // namespace cenote
