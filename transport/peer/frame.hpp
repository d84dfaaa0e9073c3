// The frames that nodes send each other: a header of 32 bytes, and a body that a message fills.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.hpp"

namespace cenote::peer {

/// One life of a worker: grows with every worker of a node, and with every start of the node. One number: the node's
/// start in milliseconds since 1970 (41 bits until 2039), then 20 bits of the worker's number since that start. A node
/// whose workers outnumber those bits keeps the last number.
struct incarnation {
  std::uint64_t number = 0;

  [[nodiscard]] static incarnation of(std::uint64_t started_ms, std::uint64_t worker) noexcept;
  /// Equal for all workers of one start of a node.
  [[nodiscard]] std::uint64_t started_ms() const noexcept { return number >> worker_bits; }
  auto operator<=>(const incarnation&) const = default;

  static constexpr unsigned worker_bits = 20;
};

/// What a frame is. Numbers are part of the wire: append only.
enum class frame_type : std::uint16_t {
  hello = 1,      ///< first frame of the side that dialled
  challenge = 2,  ///< the answer, with a proof
  welcome = 3,    ///< the proof of the side that dialled: from now on other frames are heard
  refuse = 4,     ///< why the link ends
  beat = 5,
  view = 6,
  leave = 7,
  weigh = 8,  ///< how much the sender holds from now on: 64 bits
  ping = 9,
  pong = 10,
  bind = 16,  ///< of blocks, as the next: see block_messages.hpp. A request and its answer have one number
  bound = 17,
  unbind = 18,  ///< the sender uses that instance no more; there is no answer
  locate = 20,
  located = 21,
  fetch = 22,
  fetch_here = 23,  ///< the same, but not to be sent elsewhere
  fetched = 24,     ///< those that bring no bytes
  offer = 25,
  accept = 26,
  elsewhere = 27,  ///< fetch: another node was sent these lately, and this one has much to do
  stored = 28,
  forget = 29,
  forgot = 30,
  write_off = 31,   ///< nodes that never come back; answered with `forgot` by one of them that did
  check = 32,       ///< wrong bytes came of these blocks of the receiver; a block_request, without an answer
  seek_group = 40,  ///< of groups of ranks, as the next: see agreement_messages.hpp
  join_group = 41,
  group_formed = 42,
  propose_lengths = 43,
  group_says = 44,  ///< decided, lost or refused
  group_here = 45,
  follow = 50,  ///< of a request's blocks, as the next: see handover_messages.hpp. All carry the follow's number
  handed = 51,
  unfollow = 52,
};

inline constexpr std::size_t frame_header_bytes = 32;
inline constexpr std::uint8_t frame_major = 3;
inline constexpr std::uint8_t frame_minor = 0;

/// A frame that was heard; its body lies in the memory that it was read from.
struct frame_view {
  frame_type type{};  ///< may be none of the enumerators: a later version's
  std::uint8_t minor = 0;
  std::uint64_t request = 0;
  incarnation from{};
  std::span<const std::byte> body;
};

/// Little endian: magic "CNPF", major, minor, type (16 bits), request, bytes of the body (32), check (32), incarnation,
/// body. The check covers all of it: the body counts, since a length or
/// a key that was changed on the way does harm as a changed header does.
[[nodiscard]] std::vector<std::byte> encode_frame(frame_type type, std::uint64_t request, incarnation from,
                                                  std::span<const std::byte> body);
/// Errors: protocol_mismatch: of another major version, both are named; malformed: anything else.
[[nodiscard]] result<frame_view> decode_frame(std::span<const std::byte> bytes);

}  // namespace cenote::peer
