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
#include <utility>
#include <vector>

#include "cluster/agreement_options.hpp"
#include "cluster/counters.hpp"
#include "cluster/group_coordinator.hpp"
#include "cluster/known_nodes.hpp"
#include "core/enum_names.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/instance_spec.hpp"
#include "core/shared_bound.hpp"
#include "transport/peer/agreement_messages.hpp"
#include "transport/peer/frame.hpp"

namespace cenote::cluster {

/// Names one join of one rank. Chosen by who calls join(), never twice in a worker's life, whatever session or rank.
using rank_id = std::uint64_t;

/// What the ranks of a group must have in common for their lengths to mean the same: model, dtype, layout, tokens a
/// block, hash scheme and fingerprint. Left out is what is a rank's or a node's own: the instance's id, who pays for
/// it, and its groups with their parts, which name ranks and, with pipeline stages, layers.
[[nodiscard]] instance_identity shared_identity_of(const instance_spec& spec);

/// A rank of this node that wants to be in a group.
struct rank_join {
  rank_id id = 0;
  std::string group{};         ///< 1 to 128 bytes of UTF-8; of one owner one group in a cluster
  instance_identity shared{};  ///< shared_identity_of its instance
  std::uint32_t rank = 0;      ///< below size; the node of rank 0 coordinates
  std::uint32_t size = 0;      ///< 1 to 256, equal for all ranks
  std::chrono::nanoseconds timeout{0};
  share_holder owner{};  ///< the user and the instance group of its session: only their ranks form a group
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
  peer::group_name name{};
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
  /// `self`: the node's name; `born`: the life of its worker.
  agreement(std::string self, peer::incarnation born, agreement_options options, steady_time now)
      : self_(std::move(self)),
        born_(born),
        options_(options),
        now_(now),
        taken_groups_(node_bound::rank_groups, options.most_groups),
        taken_ranks_(node_bound::ranks, options.most_ranks) {}
  agreement(const agreement&) = delete;
  agreement& operator=(const agreement&) = delete;

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
  [[nodiscard]] const agreement_counters& counters() const noexcept { return counters_; }

 private:
  enum class rank_state : std::uint8_t { waiting, in, lost };
  struct local_rank {
    rank_id id = 0;
    std::uint64_t life = 0;
    rank_state state{};
    steady_time deadline{};  ///< waiting
    std::string why{};       ///< lost
  };
  /// Of one question, what this node's ranks said.
  struct asked {
    std::vector<std::pair<rank_id, std::uint64_t>> lengths{};
    std::chrono::nanoseconds timeout{0};  ///< the least
    steady_time speaks_at{}, gives_up_at{};
    std::uint64_t spoken = 0;
    bool is_spoken = false;
  };
  /// An epoch that ended here first, until its coordinator has said that it knows.
  struct ended {
    peer::group_epoch epoch{};
    std::string coordinator{};
    peer::incarnation born{};
    std::string why{};
    steady_time again{}, until{};
  };
  struct group {
    peer::group_name name{};
    instance_identity shared{};
    std::uint32_t size = 0;
    std::map<std::uint32_t, local_rank> ranks{};
    std::uint64_t turn = 0;  ///< of the last change of those that wait
    // Until it has formed.
    std::string coordinator{};
    peer::incarnation coordinator_born{};
    steady_time here_at{};                    ///< when the coordinator last said so
    std::optional<steady_time> again{};       ///< when to seek, or to join, again
    steady_time rival_since{}, rival_seen{};  ///< another node says that it has rank 0
    // In an epoch.
    peer::group_epoch epoch{};
    bool is_formed = false;
    std::size_t in = 0;  ///< this node's ranks
    std::vector<peer::node_ranks> table{};
    std::unordered_map<std::uint64_t, asked> open{};
    std::set<std::pair<steady_time, std::uint64_t>> alarms{};  ///< speaks_at, then gives_up_at
    std::map<std::uint64_t, std::uint64_t> decided{};
    std::uint64_t floor = 0;
    std::uint64_t heard_up_to = 0;
    bool owes_word = false;               ///< an acknowledgement
    std::vector<std::uint64_t> unsaid{};  ///< spoken, and not sent yet
    std::optional<steady_time> says_again{};
    // After one.
    std::optional<ended> over{};
    std::optional<group_coordinator> lead{};
    std::uint64_t decided_total = 0, zeros_total = 0, lost_total = 0;
    std::string why{};
  };

  [[nodiscard]] std::optional<error> why_not(const rank_join& what) const;
  [[nodiscard]] std::optional<error> why_not_in(const group& of, const rank_join& what) const;
  void forget_rank(group& of, std::uint32_t rank);
  void change_waiting(group& of, steady_time now);
  void refuse_join(group& of, std::uint32_t rank, error_code code, const std::string& why);
  [[nodiscard]] std::vector<peer::joined_rank> waiting_ranks(const group& of) const;
  void join_own(group& of, steady_time now);
  void take_refusal(group& of, const peer::refused_ranks& what, steady_time now);
  void follow_own(group& of, steady_time now);
  void enter(group& of, const peer::group_epoch& epoch, std::vector<peer::node_ranks> table, steady_time now);
  void lose(group& of, const std::string& why, steady_time now);

  void ask(group& of, rank_id rank, std::uint64_t question, std::uint64_t length, std::chrono::nanoseconds timeout,
           steady_time now);
  void speak(group& of, std::uint64_t question, steady_time now);
  void take_decision(group& of, const peer::decision& what);
  void take_too_old(group& of, std::uint64_t question);
  void answer_all(const asked& of, rank_answer answer);
  void watch_questions(group& of, steady_time now);
  void watch_joins(group& of, steady_time now);
  [[nodiscard]] std::string why_not_formed(const group& of) const;
  void watch_coordinator(group& of, steady_time now);

  result<void> take_seek(const std::string& from, std::span<const std::byte> body);
  result<void> take_join(const std::string& from, peer::incarnation born, std::span<const std::byte> body,
                         steady_time now);
  result<void> take_formed(const std::string& from, peer::incarnation born, std::span<const std::byte> body,
                           steady_time now);
  result<void> take_propose(const std::string& from, peer::incarnation born, std::span<const std::byte> body,
                            steady_time now);
  result<void> take_saying(const std::string& from, std::span<const std::byte> body, steady_time now);
  result<void> take_here(const std::string& from, peer::incarnation born, std::span<const std::byte> body,
                         steady_time now);
  void take_decided(const std::string& from, const peer::decided_lengths& what);
  void take_lost(const std::string& from, const peer::lost_epoch& what, steady_time now);
  [[nodiscard]] bool is_of_coordinator(const group& of, const std::string& from);
  [[nodiscard]] bool fits(const group& of, const std::string& from, const peer::group_formed& what) const;
  void say_over(const std::string& to, const peer::group_name& name, const peer::group_epoch& epoch,
                const std::string& why);

  void flush(group& of, steady_time now);
  void flush_seeking(group& of, steady_time now);
  void flush_word(group& of, steady_time now);
  void send(const std::string& to, peer::frame_type type, std::vector<std::byte> body);
  [[nodiscard]] group* find(const peer::group_name& name);
  [[nodiscard]] steady_time due(const group& of) const;
  void drop_idle();

  std::string self_;
  peer::incarnation born_;
  agreement_options options_;
  steady_time now_;
  known_nodes nodes_;
  std::map<peer::group_name, group> groups_;
  std::unordered_map<rank_id, std::pair<peer::group_name, std::uint32_t>> ids_;  ///< of ranks that have not left
  shared_bound taken_groups_, taken_ranks_;
  std::uint64_t turns_ = 0;   ///< lives of ranks, and changes of who waits
  std::uint64_t epochs_ = 0;  ///< formations by this node
  std::vector<agreement_frame> frames_;
  std::vector<rank_answer> answers_;
  agreement_counters counters_;
};

}  // namespace cenote::cluster
