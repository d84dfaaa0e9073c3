// What nodes say to each other about groups of ranks: the bodies of frames. As in transport/peer/messages.hpp, a body
// may have more at its end than is known here, and decode functions refuse what is too short or too long with
// `malformed`. docs/consensus.md has the protocol.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/shared_bound.hpp"
#include "transport/peer/frame.hpp"

namespace cenote::peer {

inline constexpr std::size_t longest_group_name = 128;      ///< bytes
inline constexpr std::uint32_t most_group_ranks = 256;      ///< of a group, on all nodes
inline constexpr std::size_t most_frame_questions = 16384;  ///< of a frame: with 24 bytes each it fits
inline constexpr std::size_t longest_group_reason = 1024;   ///< bytes

/// One formation of a group: the life of its coordinator's worker, and the running number that this one gave it. No two
/// formations by one node have the same one; of two nodes they may, so it is compared together with who says it.
struct group_epoch {
  incarnation coordinator{};
  std::uint64_t number = 0;  ///< 0: none
  auto operator<=>(const group_epoch&) const = default;
};

/// A group belongs to the user and the instance group whose ranks form it: under the same text those of another user
/// or instance group form another one, on whatever nodes.
struct group_name {
  std::string text{};
  share_holder owner{};
  auto operator<=>(const group_name&) const = default;
};

/// To all nodes: who has rank 0 of this group?
struct seek_group {
  group_name group{};
  bool has_first = false;  ///< the sender has a rank 0 itself
};

/// A rank that joined. Its life is a number that its node never gives to another join.
struct joined_rank {
  std::uint32_t rank = 0;
  std::uint64_t life = 0;
  auto operator<=>(const joined_rank&) const = default;
};

/// All ranks of the sender that wait for the group to form. Of two such frames the one with the higher turn counts.
struct join_group {
  group_name group{};
  instance_identity shared;  ///< what its ranks must have in common
  std::uint32_t size = 0;    ///< ranks of the whole group
  std::uint64_t turn = 0;    ///< grows with each change of `ranks`
  std::vector<joined_rank> ranks{};
};

struct node_ranks {
  std::string node{};
  incarnation born{};
  std::vector<joined_rank> ranks{};
  bool operator==(const node_ranks&) const = default;
};

/// The coordinator's: the epoch has begun, with these.
struct group_formed {
  group_name group{};
  group_epoch epoch{};
  std::vector<node_ranks> nodes{};
};

/// A node's word for all of its ranks: the least length of theirs.
struct proposal {
  std::uint64_t question = 0;
  std::uint64_t length = 0;
  std::uint64_t timeout_ns = 0;  ///< the rank's that asked for the earliest answer
  bool operator==(const proposal&) const = default;
};

/// Also the acknowledgement of group_formed and of decisions.
struct propose_lengths {
  group_name group{};
  group_epoch epoch{};
  std::uint64_t heard_up_to = 0;  ///< decisions of the epoch, by the order in which they were made, that arrived
  bool is_over = false;           ///< for the sender the epoch is lost
  std::string why{};              ///< is_over
  std::vector<proposal> proposals{};
};

struct decision {
  std::uint64_t question = 0;
  std::uint64_t length = 0;
  bool operator==(const decision&) const = default;
};

/// The coordinator's: what was decided, in the order of deciding.
struct decided_lengths {
  group_name group{};
  group_epoch epoch{};
  std::uint64_t first = 0;  ///< number of the first one; 1 is the epoch's first
  std::vector<decision> decisions{};
  std::vector<std::uint64_t> too_old{};  ///< questions that it does not answer
};

/// The coordinator's: the epoch is lost, and for good.
struct lost_epoch {
  group_name group{};
  group_epoch epoch{};
  bool wants_answer = false;  ///< propose_lengths with is_over
  std::string why{};
};

/// The coordinator's: these cannot join.
struct refused_ranks {
  group_name group{};
  error_code code{};
  std::vector<std::uint64_t> lives{};
  std::string why{};
};

/// The body of a `group_says`. Kinds that are not known are empty.
using group_saying = std::variant<std::monostate, decided_lengths, lost_epoch, refused_ranks>;

/// The answer to a seek_group: rank 0 of the group is here.
struct group_here {
  group_name group{};
  bool is_formed = false;
};

[[nodiscard]] std::vector<std::byte> encode(const seek_group& what);
[[nodiscard]] std::vector<std::byte> encode(const join_group& what);
[[nodiscard]] std::vector<std::byte> encode(const group_formed& what);
[[nodiscard]] std::vector<std::byte> encode(const propose_lengths& what);
[[nodiscard]] std::vector<std::byte> encode(const decided_lengths& what);
[[nodiscard]] std::vector<std::byte> encode(const lost_epoch& what);
[[nodiscard]] std::vector<std::byte> encode(const refused_ranks& what);
[[nodiscard]] std::vector<std::byte> encode(const group_here& what);

[[nodiscard]] result<seek_group> decode_seek_group(std::span<const std::byte> body);
[[nodiscard]] result<join_group> decode_join_group(std::span<const std::byte> body);
[[nodiscard]] result<group_formed> decode_group_formed(std::span<const std::byte> body);
[[nodiscard]] result<propose_lengths> decode_propose_lengths(std::span<const std::byte> body);
[[nodiscard]] result<group_saying> decode_group_saying(std::span<const std::byte> body);
[[nodiscard]] result<group_here> decode_group_here(std::span<const std::byte> body);

}  // namespace cenote::peer
