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

}  // namespace

trace_figures measure_figures(const simulation::trace& requests, const figure_choice& choice) {
  trace_figures figures;
  const auto hits = simulation::endless_hits(requests);
  figures.reuse = simulation::measure_reuse(requests);
  if (!figures.reuse) {
    figures.omitted.push_back({"reuse_distance", halves_reason});
    figures.omitted.push_back({"reuse_ms", halves_reason});
  }
  figures.uses = simulation::measure_uses(requests);
  figures.helpless = simulation::count_helpless(requests, hits);
  figures.engine = simulation::measure_engine_hits(requests, hits);
  if (!figures.engine) figures.omitted.push_back({"engine_hits", engine_reason});
  if (choice.window_ms > 0) figures.windows = simulation::measure_windows(requests, hits, choice.window_ms);
  measure_sharers(requests, choice, figures);
  figures.tree = simulation::prefix_tree::measure(requests, hits);
  if (!figures.tree) {
    figures.omitted.push_back({"tree", forest_reason});
    figures.omitted.push_back({"hot", forest_reason});
  }
  figures.turns = simulation::measure_turns(requests);
  if (!figures.turns) figures.omitted.push_back({"turns", session_reason});
  const std::uint32_t quarter = std::max(1U, requests.distinct() / 4);
  figures.sizes = simulation::measure_block_sizes(requests, choice.capacity.value_or(quarter));
  if (!figures.sizes) {
    figures.omitted.push_back({"block_sizes", requests.stores_all() ? forest_reason : halves_reason});
  }
  figures.ttls = simulation::measure_ttls(requests);
  if (!figures.ttls) figures.omitted.push_back({"ttl", halves_reason});
  return figures;
}

}  // namespace cenote::optimize
