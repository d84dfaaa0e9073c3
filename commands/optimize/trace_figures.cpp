#include "commands/optimize/trace_figures.hpp"

#include <algorithm>

namespace cenote::optimize {

namespace {

using simulation::sharer;

constexpr std::string_view halves_reason =
    "reads and writes are requests of their own here: a read brings in nothing that the next one could hit";
constexpr std::string_view forest_reason = "a block comes behind two different ones: chains are no prefixes";
constexpr std::string_view session_reason = "all requests are of one session, or the format has none";
constexpr std::string_view instance_reason = "all requests are of one instance, or the format has none";
constexpr std::string_view engine_reason = "no request has blocks that its engine had itself, or the format has none";
constexpr std::string_view separate_reason = "instances share no block; --merge-instances lets them";
constexpr std::string_view time_reason = "`timestamp` is missing in all requests, or is the same in all";

void measure_sharers(const simulation::trace& requests, const figure_choice& choice, trace_figures& figures) {
  figures.sessions = measure_sharing(requests, sharer::session);
  if (figures.sessions->sharers < 2) {
    figures.sessions.reset();
    figures.omitted.push_back({"sharing.sessions", session_reason});
  }
  figures.instances = measure_sharing(requests, sharer::instance);
  if (figures.instances->sharers >= 2 && choice.instances_share) return;
  const bool is_one = figures.instances->sharers < 2;
  figures.instances.reset();
  figures.omitted.push_back({"sharing.instances", is_one ? instance_reason : separate_reason});
}

/// The figures that times between requests make.
void measure_times(const simulation::trace& requests, const std::vector<std::uint32_t>& hits,
                   const figure_choice& choice, trace_figures& figures) {
  const auto omit = [&](std::string_view name, std::string_view reason) { figures.omitted.push_back({name, reason}); };
  figures.has_times = choice.has_times;
  if (choice.has_times && choice.window_ms > 0) {
    figures.windows = simulation::measure_windows(requests, hits, choice.window_ms);
  }
  if (choice.has_times) figures.turns = simulation::measure_turns(requests);
  if (choice.has_times) figures.ttls = simulation::measure_ttls(requests);
  if (!figures.reuse || !choice.has_times) omit("reuse_ms", figures.reuse ? time_reason : halves_reason);
  if (!figures.turns) omit("turns", choice.has_times ? session_reason : time_reason);
  if (!figures.ttls) omit("ttl", requests.stores_all() ? time_reason : halves_reason);
  if (!choice.has_times && choice.window_ms > 0) omit("over_time", time_reason);
}

}  // namespace

trace_figures measure_figures(const simulation::trace& requests, const figure_choice& choice) {
  trace_figures figures;
  const auto hits = simulation::endless_hits(requests);
  figures.reuse = simulation::measure_reuse(requests);
  if (!figures.reuse) figures.omitted.push_back({"reuse_distance", halves_reason});
  figures.uses = simulation::measure_uses(requests);
  figures.helpless = simulation::count_helpless(requests, hits);
  figures.engine = simulation::measure_engine_hits(requests, hits);
  if (!figures.engine) figures.omitted.push_back({"engine_hits", engine_reason});
  measure_times(requests, hits, choice, figures);
  measure_sharers(requests, choice, figures);
  figures.tree = simulation::prefix_tree::measure(requests, hits);
  if (!figures.tree) {
    figures.omitted.push_back({"tree", forest_reason});
    figures.omitted.push_back({"hot", forest_reason});
  }
  const std::uint32_t quarter = std::max(1U, requests.distinct() / 4);
  figures.sizes = simulation::measure_block_sizes(requests, choice.capacity.value_or(quarter));
  if (!figures.sizes) {
    figures.omitted.push_back({"block_sizes", requests.stores_all() ? forest_reason : halves_reason});
  }
  return figures;
}

}  // namespace cenote::optimize
