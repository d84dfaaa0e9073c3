// What nodes say to each other of a request's blocks that one makes and the other wants: the bodies of frames. As in
// transport/peer/messages.hpp, a body may have more at its end than is known here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/block_key.hpp"
#include "core/error.hpp"
#include "core/handover.hpp"

namespace cenote::peer {

/// Say which blocks of the request are whole, from `position` on, as they become so. A second one of the same number
/// takes the first one's place.
struct follow_request {
  handover::request_name request{};
  std::uint64_t position = 0;
  std::uint32_t patience_ms = 0;  ///< afterwards nothing is wanted any more
};

/// They are, in the request's order. At most `most_handed` of them.
struct handed_keys {
  std::uint64_t first = 0;  ///< place of keys[0] in the request
  bool is_over = false;     ///< nothing follows
  std::vector<full_key> keys{};
  error_code code = error_code::ok;  ///< over: why it is not followed; an earlier version hears that it is over

  static constexpr std::size_t most = 4096;
};

[[nodiscard]] std::vector<std::byte> encode(const follow_request& what);
/// All keys have one width.
[[nodiscard]] std::vector<std::byte> encode(const handed_keys& what);

/// Errors: malformed.
[[nodiscard]] result<follow_request> decode_follow_request(std::span<const std::byte> body);
[[nodiscard]] result<handed_keys> decode_handed_keys(std::span<const std::byte> body);

}  // namespace cenote::peer
