// What nodes say to know of each other: the bodies of frames. A body may have more at its end than is known here: that
// is a later minor version's. All decode functions refuse what is too short or too long with `malformed`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/endpoint.hpp"
#include "core/error.hpp"
#include "transport/peer/frame.hpp"

namespace cenote::peer {

using nonce = std::array<std::byte, 32>;
/// An HMAC-SHA256.
using proof = std::array<std::byte, 32>;

inline constexpr std::size_t longest_reason = 1024;
inline constexpr std::size_t most_members = 4096;  ///< of a view
inline constexpr std::size_t longest_payload = 4096;

/// A bit of greeting::features: no block of the node outlives it, since it has no tier on a disk.
inline constexpr std::uint64_t volatile_blocks = 1;

/// What a node says of itself when a link begins.
struct greeting {
  std::string cluster;  ///< a plain name (core/text), as the next
  std::string name;
  std::string version;  ///< of the program
  endpoint where;       ///< where others dial it
  endpoint blocks_at;
  incarnation born;
  nonce once{};
  std::uint64_t features = 0;  ///< bits; those that are not known mean nothing
  std::uint64_t weight = 0;    ///< bytes that it can hold, or what its operator said
  bool has_secret = false;
};

struct hello {
  greeting who;
};
struct challenge {
  greeting who;
  proof shown{};
};
struct welcome {
  proof shown{};
};

/// Why a link ends. Numbers are part of the wire.
enum class refusal : std::uint16_t {
  other_cluster = 1,
  wrong_secret = 2,
  name_taken = 3,  ///< another node of that name is alive
  itself = 4,      ///< a node has dialled its own address
  closing = 6,
  other_version = 7,  ///< of the protocol
};
struct refuse {
  refusal why{};
  std::string text;
};

struct beat {
  std::uint64_t view_hash = 0;
  std::int64_t sent_ns = 0;  ///< by the sender's clock
  std::int64_t echo_ns = 0;  ///< sent_ns of the last beat that it heard; 0: none
  std::int64_t held_ns = 0;  ///< for how long it had that one
};

/// How much the sender holds beside others, from now on.
struct weigh {
  std::uint64_t weight = 0;  ///< bytes; 0: nothing belongs there
};

/// A node as another one sees it.
struct viewed {
  std::string name;
  endpoint where;
  incarnation born;
};
struct view {
  std::vector<viewed> live;
};

[[nodiscard]] std::vector<std::byte> encode(const greeting& what);
/// A challenge; the greeting as it was encoded, since the proof is of those bytes. It comes last, so that it may grow.
[[nodiscard]] std::vector<std::byte> encode_challenge(const proof& shown, std::span<const std::byte> greeting_bytes);
[[nodiscard]] std::vector<std::byte> encode(const welcome& what);
[[nodiscard]] std::vector<std::byte> encode(const refuse& what);
[[nodiscard]] std::vector<std::byte> encode(const beat& what);
[[nodiscard]] std::vector<std::byte> encode(const view& what);
[[nodiscard]] std::vector<std::byte> encode(const weigh& what);

[[nodiscard]] result<hello> decode_hello(std::span<const std::byte> body);
[[nodiscard]] result<challenge> decode_challenge(std::span<const std::byte> body);
[[nodiscard]] result<welcome> decode_welcome(std::span<const std::byte> body);
[[nodiscard]] result<refuse> decode_refuse(std::span<const std::byte> body);
[[nodiscard]] result<beat> decode_beat(std::span<const std::byte> body);
[[nodiscard]] result<view> decode_view(std::span<const std::byte> body);
[[nodiscard]] result<weigh> decode_weigh(std::span<const std::byte> body);

}  // namespace cenote::peer
