// What is asked and said of a hand-over: blocks that belong to a request, followed from where they are made to where
// they are wanted. Plain values, for the tiers and the network.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/block_key.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/shared_bound.hpp"

namespace cenote::handover {

inline constexpr std::size_t longest_request = max_key_bytes;  ///< bytes of a request's name, at least one
inline constexpr std::size_t longest_node = max_key_bytes;     ///< bytes of a node's name
inline constexpr std::size_t most_request_keys = std::size_t{1} << 16;

/// Whose blocks: of one instance (identity_of(spec)) and group. Another instance's request of the same name is another
/// one.
struct request_name {
  instance_identity identity{};
  std::uint32_t group = 0;
  std::string text{};

  auto operator<=>(const request_name&) const = default;
};

/// Somebody wants the keys of a request's blocks as these become whole at `node`, or wants them no more.
struct order {
  std::uint64_t number = 0;  ///< the follower's: news carry it
  bool ends = false;         ///< no news any more; what follows is of no meaning then
  request_name request{};
  std::string node{};                   ///< empty: this one
  std::uint64_t position = 0;           ///< of the first key that is wanted
  std::chrono::nanoseconds patience{};  ///< nothing is wanted any more after so long
  share_holder holder{};                ///< of the session that follows, or the node
};

/// Keys whose blocks became whole, in the request's order.
struct news {
  std::uint64_t number = 0;
  std::uint64_t first = 0;  ///< place of keys[0] in the request
  std::vector<full_key> keys{};
  bool is_over = false;              ///< nothing follows
  error_code code = error_code::ok;  ///< over: it cannot be followed
  std::uint32_t from = 0;            ///< cluster::pool's number of the node that has them; 0: this one
  std::string payer{};               ///< the instance group
};

}  // namespace cenote::handover
