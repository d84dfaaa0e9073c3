// What a node says of its groups of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/tier_report.hpp"
#include "cluster/agreement.hpp"
#include "cluster/counters.hpp"

namespace cenote {

/// Of all groups with ranks on this node.
struct consensus_gauges {
  std::uint64_t groups = 0, formed = 0, ranks = 0, open = 0;
};

/// Of one. Counters begin when the group gets its first rank here, and end with its last one: those of /metrics are the
/// node's.
struct rank_group_figures {
  std::uint64_t uid = 0, size = 0, here = 0, open = 0, decided = 0, zeros = 0, lost = 0;
  double decided_per_s = 0;
};

template <>
struct figure_table<consensus_gauges> {
  using all = consensus_gauges;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"consensus.groups", "cenote_consensus_groups", gauge, "groups", "Groups of ranks with a rank on this node.",
       &all::groups},
      {"consensus.formed", "cenote_consensus_formed", gauge, "groups", "Of those, with all ranks.", &all::formed},
      {"consensus.ranks", "cenote_consensus_ranks", gauge, "ranks", "Ranks on this node.", &all::ranks},
      {"consensus.open", "cenote_consensus_open", gauge, "questions", "Questions that wait on this node.", &all::open},
  });
};
static_assert(rows_are_complete<consensus_gauges>(), "a figure has no row");

template <>
struct figure_table<rank_group_figures> {
  using all = rank_group_figures;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"rank_groups[].uid", "", gauge, "uid", "The user whose ranks form the group.", &all::uid},
      {"rank_groups[].size", "cenote_rank_group_size", gauge, "ranks", "Ranks of the groups.", &all::size},
      {"rank_groups[].here", "cenote_rank_group_here", gauge, "ranks", "Of those, on this node.", &all::here},
      {"rank_groups[].open", "cenote_rank_group_open", gauge, "questions", "Questions that wait on this node.",
       &all::open},
      {"rank_groups[].decided", "", counter, "questions", "Questions decided.", &all::decided},
      {"rank_groups[].zeros", "", counter, "questions", "Of those, with 0.", &all::zeros},
      {"rank_groups[].lost", "", counter, "epochs", "Times that the group was lost.", &all::lost},
      {"rank_groups[].decided_per_s", "", gauge, "questions", "Decided a second, of late.", &all::decided_per_s},
  });
};
static_assert(rows_are_complete<rank_group_figures>(), "a figure has no row");

struct rank_group_report {
  cluster::group_report group;
  std::string label{};  ///< its instance group in metrics
  rank_group_figures figures;
};

struct consensus_report final : tier_report {
  consensus_report() : tier_report("consensus") {}

  consensus_gauges now;
  cluster::agreement_counters totals;
  std::vector<rank_group_report> groups;

  /// Makes the parts that every report has of the members above.
  void describe();
  /// With every optional part, for the reference of metrics.
  [[nodiscard]] static tier_report_ptr example();
};

}  // namespace cenote
