// What a node counts of its cluster: a member and its row are all that a figure needs.
#pragma once

#include <cstdint>

#include "core/figure.hpp"

namespace cenote::cluster {

/// Totals since the worker started.
struct membership_counters {
  std::uint64_t frames = 0, unknown_types = 0, bad_frames = 0, stale_frames = 0;
  std::uint64_t greetings_refused = 0, greetings_late = 0;
  std::uint64_t joined = 0, suspected = 0, recovered = 0, lost = 0;
};

/// Of the network and of requests to other nodes.
struct traffic_counters {
  std::uint64_t sent_bytes = 0, heard_bytes = 0, strange_messages = 0, refused_links = 0, strangers = 0,
                unended_closes = 0;
  std::uint64_t requests = 0, overdue = 0, cut = 0;
};

struct cluster_gauges {
  std::uint64_t live = 0, known = 0, askable = 0, epoch = 0, weight = 0;
};

/// Of blocks between nodes.
struct pool_counters {
  std::uint64_t fetched = 0, fetched_bytes = 0, offered = 0, offered_bytes = 0, missed = 0, unanswered = 0;
  std::uint64_t lent = 0, lent_bytes = 0, sent_elsewhere = 0, brought_up = 0, hosted = 0, not_hosted = 0, wrong = 0,
                refused = 0;
  std::uint64_t follows = 0, followed = 0, handed = 0;
  std::uint64_t unconfirmed = 0, repeated_removals = 0, dropped_removals = 0;
  std::uint64_t write_offs = 0, own_clears = 0, failed_saves = 0;
  std::uint64_t awaited_nodes = 0, excess_nodes = 0;
};

/// Of groups of ranks, since the worker started.
struct agreement_counters {
  std::uint64_t formed = 0, lost = 0, refused = 0, questions = 0, decided = 0, zeros = 0, too_old = 0, overdue = 0;
  std::uint64_t frames = 0, stray_frames = 0, repeats = 0;
};

}  // namespace cenote::cluster

namespace cenote {

template <>
struct figure_table<cluster::membership_counters> {
  using all = cluster::membership_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"cluster.counters.frames", "cenote_cluster_frames_total", counter, "frames", "Frames heard of other nodes.",
       &all::frames},
      {"cluster.counters.unknown_types", "cenote_cluster_unknown_types_total", counter, "frames",
       "Frames of a later version's types: ignored.", &all::unknown_types},
      {"cluster.counters.bad_frames", "cenote_cluster_bad_frames_total", counter, "frames",
       "Frames that made no sense; each closed its link.", &all::bad_frames},
      {"cluster.counters.stale_frames", "cenote_cluster_stale_frames_total", counter, "frames",
       "Frames of a worker that was replaced: dropped.", &all::stale_frames},
      {"cluster.counters.greetings_refused", "cenote_cluster_greetings_refused_total", counter, "links",
       "Links refused: another cluster, another secret, a name that is taken.", &all::greetings_refused},
      {"cluster.counters.greetings_late", "cenote_cluster_greetings_late_total", counter, "links",
       "Links closed because the other side did not greet in time.", &all::greetings_late},
      {"cluster.counters.joined", "cenote_cluster_joined_total", counter, "nodes", "Nodes that came, or came back.",
       &all::joined},
      {"cluster.counters.suspected", "cenote_cluster_suspected_total", counter, "nodes",
       "Nodes that fell silent for `cluster.suspect_after`.", &all::suspected},
      {"cluster.counters.recovered", "cenote_cluster_recovered_total", counter, "nodes",
       "Suspects that were heard again.", &all::recovered},
      {"cluster.counters.lost", "cenote_cluster_lost_total", counter, "nodes", "Nodes whose link ended.", &all::lost},
  });
};
static_assert(rows_are_complete<cluster::membership_counters>(), "a figure has no row");

template <>
struct figure_table<cluster::traffic_counters> {
  using all = cluster::traffic_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"cluster.counters.sent_bytes", "cenote_cluster_sent_bytes_total", counter, "bytes",
       "Frames sent to other nodes.", &all::sent_bytes},
      {"cluster.counters.heard_bytes", "cenote_cluster_heard_bytes_total", counter, "bytes",
       "Frames heard of other nodes.", &all::heard_bytes},
      {"cluster.counters.strange_messages", "cenote_cluster_strange_messages_total", counter, "messages",
       "Messages of no link, or of the wrong form: thrown away.", &all::strange_messages},
      {"cluster.counters.refused_links", "cenote_cluster_refused_links_total", counter, "links",
       "Links refused because there were too many.", &all::refused_links},
      {"cluster.counters.strangers", "cenote_cluster_strangers_total", counter, "connections",
       "Connections that did not prove the cluster's secret, or said nothing: closed, and no byte of them reached UCX.",
       &all::strangers},
      {"cluster.counters.unended_closes", "cenote_cluster_unended_closes_total", counter, "links",
       "Links that count as closed though UCX has not let go of them within five seconds: what it has of them is kept.",
       &all::unended_closes},
      {"cluster.counters.requests", "cenote_cluster_requests_total", counter, "requests", "Requests to other nodes.",
       &all::requests},
      {"cluster.counters.overdue", "cenote_cluster_requests_overdue_total", counter, "requests",
       "Requests that no answer came to in time, or whose link ended.", &all::overdue},
      {"cluster.counters.cut", "cenote_cluster_cut_total", counter, "frames",
       "Frames dropped by `cenote debug partition`.", &all::cut},
  });
};
static_assert(rows_are_complete<cluster::traffic_counters>(), "a figure has no row");

template <>
struct figure_table<cluster::pool_counters> {
  using all = cluster::pool_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"cluster.pool.fetched", "cenote_cluster_fetched_total", counter, "blocks", "Blocks got from other nodes.",
       &all::fetched},
      {"cluster.pool.fetched_bytes", "cenote_cluster_fetched_bytes_total", counter, "bytes", "The same.",
       &all::fetched_bytes},
      {"cluster.pool.offered", "cenote_cluster_offered_total", counter, "blocks",
       "Blocks that other nodes took, or had already.", &all::offered},
      {"cluster.pool.offered_bytes", "cenote_cluster_offered_bytes_total", counter, "bytes", "Of those that they took.",
       &all::offered_bytes},
      {"cluster.pool.missed", "cenote_cluster_missed_total", counter, "blocks",
       "Blocks that a node was asked for and did not have.", &all::missed},
      {"cluster.pool.unanswered", "cenote_cluster_unanswered_total", counter, "blocks",
       "Blocks that a node did not answer for in time, or whose link ended.", &all::unanswered},
      {"cluster.pool.lent", "cenote_cluster_lent_total", counter, "blocks", "Blocks sent to nodes that asked.",
       &all::lent},
      {"cluster.pool.lent_bytes", "cenote_cluster_lent_bytes_total", counter, "bytes", "The same.", &all::lent_bytes},
      {"cluster.pool.sent_elsewhere", "cenote_cluster_sent_elsewhere_total", counter, "blocks",
       "Asked for while this node had much to do, and named to be had at another one.", &all::sent_elsewhere},
      {"cluster.pool.brought_up", "cenote_cluster_brought_up_total", counter, "blocks",
       "Blocks that came up from a tier below because another node asked.", &all::brought_up},
      {"cluster.pool.hosted", "cenote_cluster_hosted_total", counter, "blocks", "Blocks of other nodes stored here.",
       &all::hosted},
      {"cluster.pool.not_hosted", "cenote_cluster_not_hosted_total", counter, "blocks",
       "Blocks of other nodes that came and could not be stored.", &all::not_hosted},
      {"cluster.pool.wrong", "cenote_cluster_wrong_total", counter, "blocks",
       "Blocks that came with wrong bytes: thrown away.", &all::wrong},
      {"cluster.pool.refused", "cenote_cluster_pool_refused_total", counter, "requests",
       "Instances that were not bound, and requests that made no sense.", &all::refused},
      {"cluster.pool.follows", "cenote_cluster_follows_total", counter, "requests",
       "Requests that engines of this node follow, here or at other nodes.", &all::follows},
      {"cluster.pool.followed", "cenote_cluster_followed_total", counter, "requests",
       "Requests that other nodes follow here.", &all::followed},
      {"cluster.pool.handed", "cenote_cluster_handed_total", counter, "blocks",
       "Blocks of those that they were told of.", &all::handed},
      {"cluster.pool.unconfirmed", "cenote_cluster_unconfirmed_removals", figure_kind::gauge, "removals",
       "Removals that some other node has not confirmed.", &all::unconfirmed},
      {"cluster.pool.repeated_removals", "cenote_cluster_repeated_removals_total", counter, "removals",
       "Removals sent again, since not every node had confirmed them.", &all::repeated_removals},
      {"cluster.pool.dropped_removals", "cenote_cluster_dropped_removals_total", counter, "removals",
       "Removals that are not repeated any more, since too many wait: a node that was away may still have those "
       "blocks.",
       &all::dropped_removals},
      {"cluster.pool.failed_saves", "cenote_cluster_failed_saves_total", counter, "saves",
       "Times that the file of unconfirmed removals in `remote.state_dir` could not be written: it is tried again.",
       &all::failed_saves},
      {"cluster.pool.write_offs", "cenote_cluster_write_offs", figure_kind::gauge, "nodes",
       "Nodes that are written off and have not come back: `cenote cluster write-off`.", &all::write_offs},
      {"cluster.pool.awaited_nodes", "cenote_cluster_awaited_nodes", figure_kind::gauge, "nodes",
       "Nodes that removals wait for, since they are away or have not confirmed one: `cluster.awaited` names them.",
       &all::awaited_nodes},
      {"cluster.pool.excess_nodes", "cenote_cluster_excess_nodes_total", counter, "nodes",
       "Nodes that were away and are written off, since there are more names than are kept (1,024).",
       &all::excess_nodes},
      {"cluster.pool.own_clears", "cenote_cluster_own_clears_total", counter, "clears",
       "Clears of all blocks of this node, since others had written it off.", &all::own_clears},
  });
};
static_assert(rows_are_complete<cluster::pool_counters>(), "a figure has no row");

template <>
struct figure_table<cluster::cluster_gauges> {
  using all = cluster::cluster_gauges;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"cluster.live", "cenote_cluster_live", gauge, "nodes", "Nodes that can be used, this one among them.",
       &all::live},
      {"cluster.known", "cenote_cluster_known", gauge, "nodes", "Other nodes and addresses that are known.",
       &all::known},
      {"cluster.askable", "cenote_cluster_askable", gauge, "nodes",
       "Other nodes that can be used and whose links carry blocks.", &all::askable},
      {"cluster.epoch", "", gauge, "changes", "Grows with each change of who can be used.", &all::epoch},
      {"cluster.weight", "", gauge, "bytes", "How much this node holds beside others; 0: it was drained.",
       &all::weight},
  });
};
static_assert(rows_are_complete<cluster::cluster_gauges>(), "a figure has no row");

template <>
struct figure_table<cluster::agreement_counters> {
  using all = cluster::agreement_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"consensus.counters.formed", "cenote_consensus_formed_total", counter, "epochs",
       "Epochs of groups with ranks on this node that began.", &all::formed},
      {"consensus.counters.lost", "cenote_consensus_lost_total", counter, "epochs",
       "Epochs that ended: ranks that left included.", &all::lost},
      {"consensus.counters.refused", "cenote_consensus_refused_total", counter, "joins",
       "Joins of ranks of this node that failed.", &all::refused},
      {"consensus.counters.questions", "cenote_consensus_questions_total", counter, "questions",
       "Questions of ranks of this node, each rank's counted.", &all::questions},
      {"consensus.counters.decided", "cenote_consensus_decided_total", counter, "questions",
       "Questions with an answer, once a group.", &all::decided},
      {"consensus.counters.zeros", "cenote_consensus_zeros_total", counter, "questions", "Of those, with the answer 0.",
       &all::zeros},
      {"consensus.counters.too_old", "cenote_consensus_too_old_total", counter, "questions",
       "Questions refused because decisions of their time are forgotten.", &all::too_old},
      {"consensus.counters.overdue", "cenote_consensus_overdue_total", counter, "questions",
       "Questions without an answer at 90 % of their timeout: each ended its epoch.", &all::overdue},
      {"consensus.counters.frames", "cenote_consensus_frames_total", counter, "frames",
       "Frames about groups heard of other nodes.", &all::frames},
      {"consensus.counters.stray_frames", "cenote_consensus_stray_frames_total", counter, "frames",
       "Of those, of another epoch, of a node that was started again or not of the coordinator: ignored.",
       &all::stray_frames},
      {"consensus.counters.repeats", "cenote_consensus_repeats_total", counter, "frames",
       "Frames sent again because nothing acknowledged them.", &all::repeats},
  });
};
static_assert(rows_are_complete<cluster::agreement_counters>(), "a figure has no row");

}  // namespace cenote
