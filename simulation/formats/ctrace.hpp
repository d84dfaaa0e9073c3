// Cenote's own form of recorded requests, `.ctrace`: chains as pieces of earlier chains, in packed and checked frames.
// docs/trace-format.md has its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// Bytes that are read and written at places: a file. Errors: system.
class placed_bytes {
 public:
  placed_bytes() = default;
  placed_bytes(const placed_bytes&) = delete;
  placed_bytes& operator=(const placed_bytes&) = delete;
  virtual ~placed_bytes() = default;
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;
  /// All of `target`; they are there.
  [[nodiscard]] virtual result<void> read(std::uint64_t offset, std::span<std::byte> target) = 0;
  [[nodiscard]] virtual result<void> write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
};

/// Where chains go that later requests may be copies of, but for the latest ones, twice `kept_blocks` references and
/// `kept_requests` requests at most, which stay in memory.
struct older_chains {
  placed_bytes& blocks;  ///< 4 bytes a reference
  placed_bytes& ends;    ///< 8 bytes a request
  std::size_t kept_blocks = std::size_t{1} << 22;
  std::size_t kept_requests = std::size_t{1} << 19;
  std::uint64_t room = std::numeric_limits<std::uint64_t>::max();  ///< bytes of both
};

/// The facts of a file whose requests were passed on. Without the names of instances.
struct passed {
  std::uint64_t block_tokens = 0;
  std::uint64_t instances = 0;
  ctrace::facts facts;
};

/// Takes a request, whose session is 0, the numbers of its blocks, and the tokens of a block. Its error ends the
/// reading.
using passed_listener = std::function<result<void>(const simulation::trace::arrival& request,
                                                   std::span<const std::uint32_t> blocks, std::uint64_t block_tokens)>;

/// Hands all requests of `file` on, in memory that does not depend on their number: a frame, a request, the index (64
/// MiB at most) and the latest chains. Identities are not looked at. Errors: those of decode(), of `older` and of
/// `listener`; limit_exceeded: a request has over 16,777,216 blocks, or the chains take more room than there is, by
/// the counts of the file's head, before the first request.
[[nodiscard]] result<passed> pass_requests(placed_bytes& file, const older_chains& older,
                                           const passed_listener& listener);

}  // namespace cenote::formats::ctrace
