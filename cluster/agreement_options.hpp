// What can be set of the agreement of ranks, and what a test may leave out.
#pragma once

#include <chrono>
#include <cstddef>

#include "core/shared_bound.hpp"

namespace cenote::cluster {

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
  bool refuses_forgotten = true;        ///< a question that may have been decided and forgotten
  bool speaks_for_all = true;           ///< off: a node speaks when the first of its ranks has asked
  bool trusts_only_coordinator = true;  ///< with decisions, losses and formations
  bool counts_gaps = true;              ///< an acknowledgement does not cover what is missing before it
};

struct agreement_options {
  std::chrono::milliseconds repeat_after{100};  ///< what was not answered
  std::chrono::milliseconds grace{2000};        ///< for a node that is not live, before its epochs are lost
  std::chrono::milliseconds tell_for{5000};     ///< for how long others are told of a loss that they do not confirm
  std::size_t most_groups = total_of(node_bound::rank_groups);  ///< on this node
  std::size_t most_ranks = total_of(node_bound::ranks);         ///< on this node, in all groups
  std::size_t most_open = 4096;                                 ///< questions of a group that wait on this node
  std::size_t most_remembered = 4096;                           ///< decisions of a group: see agree()
  std::size_t most_unheard = 16384;  ///< decisions that a node has not acknowledged, before the epoch is lost
  agreement_rules rules{};
};

}  // namespace cenote::cluster
