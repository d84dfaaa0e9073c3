// How long is the prefix that all ranks of a group have? One number for each question, the same for all ranks: a plain
// state machine that is told of ranks, nodes, frames and the time, and says what to answer and to send.
// docs/consensus.md has the protocol, its invariants and why they hold.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cluster/counters.hpp"
#include "core/enum_names.hpp"
#include "core/error.hpp"
#include "core/instance_spec.hpp"
#include "transport/peer/agreement_messages.hpp"
#include "transport/peer/frame.hpp"

namespace cenote::cluster {

using steady_time = std::chrono::steady_clock::time_point;

/// Names one join of one rank. Chosen by who calls join(), never twice in a worker's life, whatever session or rank.
using rank_id = std::uint64_t;

/// What the ranks of a group must have in common for their lengths to mean the same: model, dtype, layout, tokens a
/// block, hash scheme and fingerprint. Left out is what is a rank's or a node's own: the instance's id, who pays for
/// it, and its groups with their parts, which name ranks and, with pipeline stages, layers.
[[nodiscard]] std::uint64_t shared_identity_of(const instance_spec& spec);

/// A rank of this node that wants to be in a group.
struct rank_join {
  rank_id id = 0;
  std::string group{};       ///< 1 to 128 bytes of UTF-8; one name, one group in a cluster
  std::uint64_t shared = 0;  ///< shared_identity_of its instance
  std::uint32_t rank = 0;    ///< below size; the node of rank 0 coordinates
  std::uint32_t size = 0;    ///< 1 to 256, equal for all ranks
  std::chrono::nanoseconds timeout{0};
};

/// What a rank is told. Exactly one answer for each join(), and one for each question that is open, whoever asked it
/// how often; none after leave().
struct rank_answer {
  enum class kind : std::uint8_t {
    formed,   ///< join: all ranks are in `epoch`
    decided,  ///< agree: `length`, which is every rank's number for this question in this epoch
    lost,     ///< agree: the epoch is over, for good; the rank can only leave, and join anew
    refused,  ///< join: the rank is not in, and its id is free. agree: this question alone has no answer; see `code`
  };
  rank_id rank = 0;
  kind what{};
  std::uint64_t question = 0;  ///< agree
  std::uint64_t length = 0;    ///< decided
  peer::group_epoch epoch{};   ///< formed
  std::string coordinator{};   ///< formed: its node
  /// refused: invalid_argument (what was asked for can never be), spec_mismatch (ranks differ; `why` names in what),
  /// limit_exceeded (too much is open, or the question is too old), deadline_exceeded (join: `why` names who is
  /// missing). lost: closed.
  error_code code{};
  std::string why{};
};

/// Rules that a test leaves out one by one, to show that each is needed.
struct agreement_rules {
  bool checks_incarnations = true;      ///< a node that was started again is another one
  bool epochs_name_a_life = true;       ///< an epoch has its coordinator's incarnation in it
  bool decides_once = true;             ///< a late proposal changes nothing
  bool lost_is_sticky = true;           ///< after a loss nothing of the epoch is answered with a number
  bool waits_for_coordinator = true;    ///< off: a node that waits for too long takes its own number
  bool sends_again = true;              ///< what was not acknowledged
  bool keeps_first_proposal = true;     ///< of a rank that asks twice
  bool missing_is_zero = true;          ///< off: the least of those that proposed
  bool remembers_decisions = true;      ///< off: until they were sent
  bool speaks_for_all = true;           ///< off: a node speaks when the first of its ranks has asked
  bool trusts_only_coordinator = true;  ///< with decisions, losses and formations
  bool rejoining_ends_epoch = true;     ///< a rank that comes again is another one
  bool counts_gaps = true;              ///< an acknowledgement does not cover what is missing before it
};

struct agreement_options {
  std::chrono::milliseconds repeat_after{100};  ///< what was not answered
  std::chrono::milliseconds grace{2000};        ///< for a node that is not live, before its epochs are lost
  std::chrono::milliseconds tell_for{5000};     ///< for how long others are told of a loss that they do not confirm
  std::size_t most_groups = 256;                ///< on this node
  std::size_t most_ranks = 4096;                ///< on this node, in all groups
  std::size_t most_open = 4096;                 ///< questions of a group that wait on this node
  std::size_t most_remembered = 4096;           ///< decisions of a group: see agree()
  std::size_t most_unheard = 16384;  ///< decisions that a node has not acknowledged, before the epoch is lost
  agreement_rules rules{};
};

/// Another node that can be asked, as membership sees it.
struct live_node {
  std::string name{};
  peer::incarnation born{};
};

struct agreement_frame {
  std::string to{};  ///< a node; empty: all that are live but this one
  peer::frame_type type{};
  std::vector<std::byte> body{};
};

enum class group_state : std::uint8_t {
  seeking,  ///< where rank 0 is is not known
  joining,  ///< ranks are missing, or have not been heard of
  formed,
  lost,  ///< the ranks that are left here must leave
};
CENOTE_ENUM_NAMES(group_state, seeking, joining, formed, lost);

/// For status: a group with ranks on this node.
struct group_report {
  struct place {
    std::uint32_t rank = 0;
    std::string node{};
    group_state state{};
  };
  std::string name{};
  std::uint32_t size = 0;
  group_state state{};
  peer::group_epoch epoch{};   ///< of the last formation; none: number 0
  std::string coordinator{};   ///< empty: not known
  std::vector<place> ranks{};  ///< by rank: formed: all; else those that are known here
  std::size_t open = 0;        ///< questions that wait on this node
  std::uint64_t decided = 0;   ///< since the group is known here; a caller makes a rate of it
  std::uint64_t zeros = 0;     ///< of those, decided 0
  std::uint64_t lost = 0;      ///< epochs
  std::string why{};           ///< of the last loss or refusal
};

/// Not thread-safe, never waits, and knows no clock: the time is an argument and never goes back. One object a worker.
///
/// Each rank of this node joins; when all ranks of the group have, on whatever nodes, each is told `formed`. Then ranks
/// ask questions. A question's answer is the least length of all ranks, or 0 if one was missing at 40 % of the timeout.
/// An epoch ends with the first rank, node or answer that is lost, and no rank hears a number of it afterwards.
class agreement {
 public:
  agreement(std::string self, peer::incarnation born, agreement_options options, steady_time now);
  ~agreement();
  agreement(agreement&&) noexcept;
  agreement& operator=(agreement&&) noexcept;

  /// Answered `formed` or `refused`, within the timeout. Time limits from 1 ms to an hour are kept as they are; others
  /// are brought there.
  void join(const rank_join& what, steady_time now);

  /// Asks a question, and proposes `length` (tokens, or whatever the ranks count in). Answered within `timeout`, by
  /// `decided`, `lost` or, for this question alone, `refused`; at once if the number is known.
  /// Questions are the engine's numbers and grow, as a counter of requests does: the last `most_remembered` decisions
  /// are remembered, those with the least numbers are forgotten first, and a question that is not remembered and less
  /// than one that was forgotten is refused. Ranks may ask in different orders within that.
  /// Who asks a question that is open again changes nothing: one answer comes, to what was proposed first. A rank that
  /// comes too late gets the number that the others got. An id that is not known is answered `lost`.
  void agree(rank_id rank, std::uint64_t question, std::uint64_t length, std::chrono::nanoseconds timeout,
             steady_time now);

  /// The rank goes: orderly, or because its process died. Ends the epoch it is in, and what it asked has no answer.
  /// An id that is not known is ignored.
  void leave(rank_id rank, steady_time now);

  /// The other nodes that are live, all of them. To be called before frames of a node that is new.
  void members_changed(std::span<const live_node> live, steady_time now);
  /// A frame of types 40 to 45 of another node, which was `born`. Errors: malformed: its link should be closed. What
  /// makes sense and does not fit (another epoch, another group, not from the coordinator) is ignored and counted.
  result<void> heard(std::string_view node, peer::incarnation born, peer::frame_type type,
                     std::span<const std::byte> body, steady_time now);
  void advance(steady_time now);

  /// What is to be sent; questions and answers since the last call go together in a frame. To be called after every
  /// turn of the caller.
  [[nodiscard]] std::vector<agreement_frame> take_frames();
  [[nodiscard]] std::vector<rank_answer> take_answers();
  /// When advance() has something to do; far away: nothing is open.
  [[nodiscard]] steady_time wake_at() const;

  /// By name; at most most_groups, with at most 256 ranks each.
  [[nodiscard]] std::vector<group_report> report() const;
  [[nodiscard]] const agreement_counters& counters() const noexcept;
};

}  // namespace cenote::cluster
