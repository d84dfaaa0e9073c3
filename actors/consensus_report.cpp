#include "actors/consensus_report.hpp"

#include <string>

namespace cenote {

namespace {

/// "0 1 2 (a), 3 ? (b)" …: which ranks are where.
std::string places_of(const cluster::group_report& group) {
  std::string text;
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    text += (i == 0 ? "" : " ") + std::to_string(group.ranks[i].rank);
    const bool is_last = i + 1 == group.ranks.size() || group.ranks[i + 1].node != group.ranks[i].node;
    if (is_last) text += " (" + group.ranks[i].node + ")" + (i + 1 == group.ranks.size() ? "" : ",");
  }
  return text;
}

report_part row_of(const rank_group_report& from) {
  const cluster::group_report& group = from.group;
  report_part one{.list = "rank_groups", .label = "group", .name = group.name.text, .texts = {}, .figures = {}};
  one.owner = group.name.owner.uid;
  one.labels = {{"instance_group", from.label}};
  one.texts = {{.path = "rank_groups[].name", .value = group.name.text},
               {.path = "rank_groups[].instance_group", .value = group.name.owner.group},
               {.path = "rank_groups[].state",
                .value = std::string(cluster::name_of(group.state)),
                .metric = "cenote_rank_group_formed",
                .help = "Groups of ranks of which all ranks are there.",
                .gauge = group.state == cluster::group_state::formed ? 1.0 : 0.0},
               {.path = "rank_groups[].epoch", .value = std::to_string(group.epoch.number)},
               {.path = "rank_groups[].coordinator", .value = group.coordinator},
               {.path = "rank_groups[].ranks", .value = places_of(group)},
               {.path = "rank_groups[].why", .value = group.why}};
  append_figures(one.figures, from.figures);
  return one;
}

}  // namespace

void consensus_report::describe() {
  append_figures(gauges, now);
  append_figures(counters, totals);
  for (const rank_group_report& each : groups) parts.push_back(row_of(each));
}

tier_report_ptr consensus_report::example() {
  auto made = std::make_shared<consensus_report>();
  made->groups.emplace_back();
  made->describe();
  return made;
}

}  // namespace cenote
