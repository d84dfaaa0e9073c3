// Frames on the node's Unix socket (SOCK_SEQPACKET: one frame is one packet).
//
//   0        4       6       8      10      12      16      20        24
//   | magic  | major | minor | type | flags | size  | reqid | spare   | payload (size bytes) …
//
// The payload of each type is described beside its number. Descriptors travel as SCM_RIGHTS of the same packet.
#pragma once

#include <cstdint>

namespace cenote::local {

inline constexpr std::uint32_t frame_magic = 0x50544e43;  // "CNTP"

/// The protocol of this build. Same major and a minor not above ours attach; anything else is refused.
inline constexpr std::uint16_t protocol_major = 1;
/// 1.1 added `client_name` to attach, 1.2 the terms of a prefetch and the operations that stop and end one, 1.3 the
/// parts of held blocks and the worker's epoch to reattach, and the parts to `reserved` completions, 1.4 the number of
/// the call to attach, 1.5 the operation that asks where a chain ends, 1.6 those that publish and follow requests, 1.7
/// those of groups of ranks, 1.8 the device and part to attach, 1.9 the question about removals that wait.
inline constexpr std::uint16_t protocol_minor = 9;

/// No packet is larger; longer texts are cut in several frames (flag_more on all but the last).
inline constexpr std::uint32_t max_frame = 64 * 1024;
inline constexpr std::uint32_t max_frame_fds = 64;

inline constexpr std::uint16_t flag_more = 1;

enum class frame_type : std::uint16_t {
  failure = 1,             ///< u16 error_code, text message
  attach = 2,              ///< see attach.hpp: spec, token, pins, (1.1) client name, (1.4) call, (1.8) device, part
  attach_reply = 3,        ///< see attach.hpp; fds: session memory, submit doorbell, complete doorbell, index, versions
  reattach = 4,            ///< see attach.hpp: session id, secret, blocks still being written
  reattach_reply = 5,      ///< u64 worker epoch
  slabs = 6,               ///< u32 count, count x u32 slab index
  slabs_reply = 7,         ///< u32 count, per slab {u32 index, u64 bytes}; fds: one a slab, in this order
  detach = 8,              ///< the session holds no pin and writes no block any more; empty reply
  done = 9,                ///< empty success reply
  admin = 10,              ///< text: a JSON object {"command": …, …}
  admin_reply = 11,        ///< text: a JSON object; flag_more: the text goes on in the next frame
  unconfirmed = 12,        ///< since 1.9: removals of the session's instance that wait; no payload
  unconfirmed_reply = 13,  ///< u64 removals that wait, u64 nodes and servers that have not confirmed one
  spans = 14,  ///< see trace_spans.hpp; no reply. Of any minor: a worker that takes them sets a word in session memory
};

struct frame_header {
  std::uint32_t magic = frame_magic;
  std::uint16_t major = protocol_major;
  std::uint16_t minor = protocol_minor;
  frame_type type{};
  std::uint16_t flags = 0;
  std::uint32_t size = 0;
  std::uint32_t request = 0;
  std::uint32_t spare = 0;
};
static_assert(sizeof(frame_header) == 24);

}  // namespace cenote::local
