// Recorded requests handed on one by one, in memory that does not depend on how many there are.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands/replay/trace.hpp"
#include "core/error.hpp"

namespace cenote::replay {

/// The facts of a file whose requests were handed on.
struct streamed_trace {
  std::string_view format;
  std::uint64_t block_tokens = 0;
  std::uint64_t instances = 0;  ///< 65,536 at most
  std::uint64_t lines = 0;      ///< that are not empty
  std::uint64_t left_out = 0;   ///< of those
  std::uint64_t requests = 0;
  std::uint64_t tokens = 0;
  std::uint64_t blocks = 0;
  std::vector<std::string> warnings{};  ///< as those of read_trace
};

/// Takes the keys of a request's blocks, head first: equal where the blocks are. Good until it returns. Its time counts
/// as that of read_trace_file(); one that goes back is taken as standing still, and so is one that a line lacks, and a
/// single one over an hour ahead.
using chain_listener = std::function<void(std::span<const std::uint64_t> chain, std::uint64_t time_ms)>;

/// Reads `path` as read_trace_file() does, but in the order of its lines, and in memory of a fixed size:
/// that of the longest line (64 MiB at most, and about 16 times as much for its parser) or, of a `.ctrace`, about 70
/// MiB and 30 bytes a block of the longest request, with what is older in a file without a name in the folder of
/// temporary files, 4 bytes a reference, half of its free space at most. Keys that are no whole numbers of their own
/// are 64 bits of a hash.
///
/// Fails as read_trace_file() does, and where the requests have another order than the lines, or store something else
/// than they ask for (unsupported), where a line or a request is too long (limit_exceeded), and where there is no room
/// for that file (system).
[[nodiscard]] result<streamed_trace> stream_trace_file(const std::string& path, const trace_reading& reading,
                                                       const chain_listener& listener);

}  // namespace cenote::replay
