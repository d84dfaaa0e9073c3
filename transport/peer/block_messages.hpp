// What nodes ask each other about blocks: the bodies of frames. As in transport/peer/messages.hpp, a body may have more
// at its end than is known here, and decode functions refuse what is too short or too long with `malformed`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/block_key.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/instance_spec.hpp"
#include "transport/peer/messages.hpp"

namespace cenote::peer {

/// Of one frame; with keys of 64 bytes it fits into network::most_frame_bytes.
inline constexpr std::size_t most_keys = 4096;

/// An instance, so that later frames name it by a number: the answer's handle, good for as long as the link, unless the
/// asker gives it back.
struct bind_request {
  instance_identity identity{};   ///< identity_of(spec)
  std::uint64_t cleared = 0;      ///< number of its last clear, as the sender knows; 0: none
  std::vector<std::byte> spec{};  ///< encoded
  /// That the sender's configuration restricts the instance's group as the home's does (cluster/group_rights.hpp).
  std::optional<proof> right{};
};
struct bind_answer {
  std::uint32_t handle = 0;  ///< 0: refused
  std::uint64_t cleared = 0;
  std::string why{};             ///< refused
  std::optional<proof> right{};  ///< of the home
};

struct unbind_request {
  std::uint32_t handle = 0;  ///< of no meaning from now on
};

/// Which of these are there?
struct locate_request {
  std::uint32_t handle = 0;
  std::uint32_t group = 0;
  std::vector<full_key> keys{};
  std::optional<std::uint64_t> cleared{};  ///< as in block_request
};
struct locate_answer {
  std::vector<bool> held{};  ///< one a key, in their order
};

/// Blocks that are asked for, or offered. The asker's tokens name them in all that follows.
struct block_request {
  std::uint32_t handle = 0;
  std::uint32_t group = 0;
  std::vector<std::pair<std::uint64_t, full_key>> blocks{};  ///< token, key
  /// Offer: the number of the last clear that the asker had carried out when it began to put these. Otherwise: of the
  /// last one that the asker knows of; blocks of before that one are missing. None: the asker is of a
  /// version without it.
  std::optional<std::uint64_t> cleared{};
};

/// What became of one block. Numbers are part of the wire.
enum class block_answer : std::uint8_t {
  missing = 1,   ///< fetch: it is not there, or cannot be had in time
  send = 2,      ///< offer: its bytes are wanted
  have = 3,      ///< offer: it is there
  full = 4,      ///< offer: there is no room
  stored = 5,    ///< its bytes came, and are right
  wrong = 6,     ///< … and are not
  lost = 7,      ///< … and were not kept
  outdated = 8,  ///< offer that names a clear: there was a later one, of which a bind tells
};
using block_answers = std::vector<std::pair<std::uint64_t, block_answer>>;

/// Blocks that another node may give sooner.
struct elsewhere_answer {
  std::string node{};
  std::vector<std::uint64_t> tokens{};
};

struct forget_request {
  instance_identity identity{};
  std::uint64_t cleared = 0;      ///< not 0: all of the instance; the clear's number
  std::vector<block_key> keys{};  ///< otherwise
  std::vector<std::byte> spec{};  ///< of the instance, encoded: for a node where no link has bound it; may be empty
  std::optional<proof> right{};   ///< as in bind_request; with a spec
};
/// Nodes that never come back, by an operator's word, and the number of each word. The one among them that gets this
/// clears its blocks and answers as a `forget`.
struct write_off_notice {
  std::vector<std::pair<std::string, std::uint64_t>> nodes{};
  std::vector<std::uint64_t> closed{};  ///< numbers of those that are over: their nodes came back
};
struct forget_answer {
  std::uint64_t removed = 0;
  std::string why{};  ///< not empty: it may not be gone
};

[[nodiscard]] std::vector<std::byte> encode(const bind_request& what);
[[nodiscard]] std::vector<std::byte> encode(const bind_answer& what);
[[nodiscard]] std::vector<std::byte> encode(const unbind_request& what);
/// All keys of a frame have one width; `keys` is not empty.
[[nodiscard]] std::vector<std::byte> encode(const locate_request& what);
[[nodiscard]] std::vector<std::byte> encode(const locate_answer& what);
[[nodiscard]] std::vector<std::byte> encode(const block_request& what);
[[nodiscard]] std::vector<std::byte> encode(const block_answers& what);
[[nodiscard]] std::vector<std::byte> encode(const elsewhere_answer& what);
[[nodiscard]] std::vector<std::byte> encode(const forget_request& what);
[[nodiscard]] std::vector<std::byte> encode(const forget_answer& what);
[[nodiscard]] std::vector<std::byte> encode(const write_off_notice& notice);

[[nodiscard]] result<bind_request> decode_bind_request(std::span<const std::byte> body);
[[nodiscard]] result<bind_answer> decode_bind_answer(std::span<const std::byte> body);
[[nodiscard]] result<unbind_request> decode_unbind_request(std::span<const std::byte> body);
[[nodiscard]] result<locate_request> decode_locate_request(std::span<const std::byte> body);
[[nodiscard]] result<locate_answer> decode_locate_answer(std::span<const std::byte> body);
[[nodiscard]] result<block_request> decode_block_request(std::span<const std::byte> body);
[[nodiscard]] result<block_answers> decode_block_answers(std::span<const std::byte> body);
[[nodiscard]] result<elsewhere_answer> decode_elsewhere_answer(std::span<const std::byte> body);
[[nodiscard]] result<forget_request> decode_forget_request(std::span<const std::byte> body);
[[nodiscard]] result<forget_answer> decode_forget_answer(std::span<const std::byte> body);
[[nodiscard]] result<write_off_notice> decode_write_off_notice(std::span<const std::byte> body);

}  // namespace cenote::peer
