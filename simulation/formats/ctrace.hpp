// Cenote's own form of recorded requests, `.ctrace`: chains as pieces of earlier chains, in packed and checked frames.
// docs/trace-format.md has its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "simulation/trace.hpp"

namespace cenote::formats::ctrace {

/// The facts of a file beside its requests.
struct facts {
  std::uint64_t lines = 0;     ///< of the log that it was made of
  std::uint64_t left_out = 0;  ///< of those
  bool full_blocks = false;    ///< blocks that are not full of tokens were left out
  bool anonymised = false;
  /// Given: the identities of blocks are not kept but made of this and their numbers.
  std::optional<std::uint64_t> seed{};
  /// Names by number, UTF-8 and no two of them equal; none where they are left out.
  std::vector<std::string> instances{};
};

struct contents {
  simulation::trace requests;
  ctrace::facts facts;
};

struct reading {
  bool full_blocks = false;  ///< without the blocks that are not full of tokens
  std::size_t limit = 0;     ///< only the first so many requests; 0: all
  std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max();  ///< of memory that the requests may take
};

/// Whether a file that begins with `bytes` is one.
[[nodiscard]] bool is_begun(std::span<const std::byte> bytes) noexcept;

/// The identity of block `number` where none is kept. Different for different numbers.
[[nodiscard]] std::uint64_t made_identity(std::uint64_t seed, std::uint64_t number) noexcept;

/// The whole file. Instances and sessions are numbered as they first come. Errors (malformed): a request has a block
/// twice, more blocks than its tokens need, too many tokens, or more pieces than a frame holds; an instance has no name
/// though there are names.
[[nodiscard]] result<std::vector<std::byte>> encode(const simulation::trace& requests, const facts& facts);

/// The requests of `file`; whatever its bytes are, memory is taken as they are decoded and up to `most_bytes`. Errors:
/// malformed, with the place; unsupported: another version; limit_exceeded: it takes more memory than it may.
[[nodiscard]] result<contents> decode(std::span<const std::byte> file, const reading& reading = {});

}  // namespace cenote::formats::ctrace
