#include "commands/optimize/figures_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <utility>

#include "commands/optimize/trace_summary.hpp"
#include "commands/table.hpp"
#include "core/units.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using simulation::block_sharing;
using simulation::power_count;
using simulation::tree_run;

std::uint64_t bytes_touched(std::uint64_t blocks, const read_trace& read, const figure_form& form) {
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  const auto product = [](std::uint64_t a, std::uint64_t b) { return b != 0 && a > most / b ? most : a * b; };
  return product(product(blocks, read.requests.block_tokens()), form.bytes_per_token);
}

// ---------------------------------------------------------------------------------------------- JSON

/// [[limit, count]]
ordered_json powers_json(const std::vector<power_count>& rows) {
  auto all = ordered_json::array();
  for (const power_count& each : rows) all.push_back(ordered_json::array({each.limit, each.count}));
  return all;
}

ordered_json engine_json(const trace_figures& figures) {
  if (!figures.engine) return nullptr;
  const simulation::engine_hits& hits = *figures.engine;
  return {{"requests", hits.requests},
          {"blocks", hits.blocks},
          {"tokens", hits.tokens},
          {"endless_more_blocks", hits.more_blocks},
          {"endless_more_tokens", hits.more_tokens}};
}

ordered_json sharing_json(const std::optional<block_sharing>& sharing) {
  if (!sharing) return nullptr;
  return {{"count", sharing->sharers},
          {"shared_blocks", sharing->shared_blocks},
          {"shared_references", sharing->shared_references}};
}

ordered_json hot_json(const read_trace& read, const simulation::prefix_tree& tree, std::size_t top) {
  auto all = ordered_json::array();
  for (const std::uint32_t number : tree.hottest(top)) {
    const tree_run& run = tree.runs()[number];
    all.push_back({{"run", number},
                   {"instance", instance_name(read, run.instance)},
                   {"depth", run.depth},
                   {"blocks", run.blocks},
                   {"uses", run.uses},
                   {"tokens_saved", run.tokens_saved}});
  }
  return all;
}

void add_tree(ordered_json& object, const read_trace& read, const trace_figures& figures, std::size_t top) {
  object["tree"] = nullptr;
  object["hot"] = nullptr;
  if (!figures.tree) return;
  const auto& shape = figures.tree->shape();
  object["tree"] = {{"nodes", shape.nodes},
                    {"roots", shape.roots},
                    {"leaves", shape.leaves},
                    {"forks", shape.forks},
                    {"depth", shape.depth}};
  object["hot"] = hot_json(read, *figures.tree, top);
}

ordered_json turns_json(const trace_figures& figures) {
  if (!figures.turns) return nullptr;
  auto all = ordered_json::array();
  for (const auto& each : *figures.turns) {
    all.push_back({{"turn", each.turn},
                   {"requests", each.requests},
                   {"p50_ms", each.median_ms},
                   {"p90_ms", each.p90_ms},
                   {"longest_ms", each.longest_ms}});
  }
  return all;
}

ordered_json sizes_json(const trace_figures& figures) {
  if (!figures.sizes) return nullptr;
  auto all = ordered_json::array();
  for (const auto& each : *figures.sizes) {
    all.push_back({{"block_tokens", each.block_tokens},
                   {"endless_hit_tokens", each.endless_tokens},
                   {"capacity", each.capacity},
                   {"hit_tokens", each.hit_tokens}});
  }
  return all;
}

ordered_json ttls_json(const trace_figures& figures) {
  if (!figures.ttls) return nullptr;
  auto all = ordered_json::array();
  for (const auto& each : *figures.ttls) {
    all.push_back({{"seconds", each.seconds}, {"hit_blocks", each.hit_blocks}, {"hit_tokens", each.hit_tokens}});
  }
  return all;
}

ordered_json windows_json(const read_trace& read, const trace_figures& figures, const figure_form& form) {
  auto all = ordered_json::array();
  for (const auto& each : figures.windows) {
    all.push_back({{"start_ms", each.start_ms},
                   {"requests", each.requests},
                   {"references", each.references},
                   {"distinct", each.distinct},
                   {"hit_blocks", each.hit_blocks},
                   {"hit_tokens", each.hit_tokens}});
    if (form.bytes_per_token > 0) all.back()["distinct_bytes"] = bytes_touched(each.distinct, read, form);
  }
  return all;
}

// ---------------------------------------------------------------------------------------------- tables

std::string ms_text(std::uint64_t ms) {
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max() / 1'000'000;
  return approximate_duration(std::chrono::milliseconds(static_cast<std::int64_t>(std::min(ms, most))));
}

std::string share_text(std::uint64_t part, std::uint64_t whole) {
  return percent(whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole));
}

std::string reuse_text(const simulation::block_reuse& reuse, std::uint64_t references, bool has_times) {
  std::string text = fmt::format("REUSE: {} of {} references are a block's first one\n", reuse.cold, references);
  table distances({">OTHER BLOCKS BELOW", ">REFERENCES", ">SHARE"});
  for (const power_count& each : reuse.distances) {
    distances.add({std::to_string(each.limit), std::to_string(each.count), share_text(each.count, references)});
  }
  if (!has_times) return text + distances.text();
  table times({">TIME BELOW", ">REFERENCES", ">SHARE"});
  for (const power_count& each : reuse.times) {
    times.add({ms_text(each.limit), std::to_string(each.count), share_text(each.count, references)});
  }
  return text + distances.text() + "\n" + times.text();
}

std::string engine_text(const simulation::engine_hits& hits, std::uint64_t tokens) {
  return fmt::format(
      "ENGINES HAD {} of the tokens themselves, in {} requests; an endless cache behind them has {} more\n",
      share_text(hits.tokens, tokens), hits.requests, share_text(hits.more_tokens, tokens));
}

std::string uses_text(const simulation::block_uses& uses) {
  simulation::power_histogram counts;
  for (const auto& each : uses.frequency) counts.add(each.uses, each.blocks);
  table rows({">USES BELOW", ">BLOCKS"});
  for (const power_count& each : counts.rows()) rows.add({std::to_string(each.limit), std::to_string(each.count)});
  return fmt::format("USES OF A BLOCK: {} of the blocks are used once; Gini coefficient {:.3f}\n{}",
                     percent(uses.one_use_share), uses.gini, rows.text());
}

std::string sharing_text(const trace_figures& figures) {
  table rows({"", ">COUNT", ">SHARED BLOCKS", ">REFERENCES TO THEM"});
  const auto add = [&](std::string name, const std::optional<block_sharing>& sharing) {
    if (!sharing) return;
    rows.add({std::move(name), std::to_string(sharing->sharers), std::to_string(sharing->shared_blocks),
              std::to_string(sharing->shared_references)});
  };
  add("sessions", figures.sessions);
  add("instances", figures.instances);
  return rows.empty() ? "" : "SHARED by more than one\n" + rows.text() + "\n";
}

std::string tree_table(const read_trace& read, const simulation::prefix_tree& tree, std::size_t top) {
  const auto& shape = tree.shape();
  table rows({">RUN", "INSTANCE", ">BLOCKS IN FRONT", ">BLOCKS", ">USES", ">TOKENS SAVED"});
  for (const std::uint32_t number : tree.hottest(top)) {
    const tree_run& run = tree.runs()[number];
    rows.add({std::to_string(number), instance_name(read, run.instance), std::to_string(run.depth),
              std::to_string(run.blocks), std::to_string(run.uses), std::to_string(run.tokens_saved)});
  }
  return fmt::format("PREFIX TREE: {} blocks, {} roots, {} leaves, {} forks, {} blocks deep; hottest runs\n{}",
                     shape.nodes, shape.roots, shape.leaves, shape.forks, shape.depth, rows.text());
}

std::string turns_text(const std::vector<simulation::turn_delay>& turns) {
  table rows({">TURN", ">REQUESTS", ">MEDIAN", ">P90", ">LONGEST"});
  for (const auto& each : turns) {
    rows.add({fmt::format("{}{}", each.turn, each.turn == simulation::most_turns ? "+" : ""),
              std::to_string(each.requests), ms_text(each.median_ms), ms_text(each.p90_ms), ms_text(each.longest_ms)});
  }
  return "TIME since the session's request in front\n" + rows.text();
}

std::string sizes_text(const std::vector<simulation::block_size>& sizes, std::uint64_t tokens) {
  table rows({">TOKENS A BLOCK", ">ENDLESS CACHE", ">CAPACITY", ">HITS THERE"});
  for (const auto& each : sizes) {
    rows.add({std::to_string(each.block_tokens), share_text(each.endless_tokens, tokens), std::to_string(each.capacity),
              share_text(each.hit_tokens, tokens)});
  }
  return "PREFIX-TOKEN HITS by block size, and at a capacity in blocks of as many tokens (lru rev)\n" + rows.text();
}

std::string ttls_text(const std::vector<simulation::ttl_hits>& ttls, std::uint64_t tokens) {
  table rows({">TTL", ">HITS"});
  for (const auto& each : ttls) {
    rows.add({fmt::format("{} s", each.seconds), share_text(each.hit_tokens, tokens)});
  }
  return "PREFIX-TOKEN HITS of an endless cache whose blocks go when unused for so long\n" + rows.text();
}

std::string windows_text(const read_trace& read, const trace_figures& figures, const figure_form& form) {
  table rows({">START", ">REQUESTS", ">REFERENCES", ">HITS OF AN ENDLESS CACHE", ">DISTINCT SO FAR",
              form.bytes_per_token > 0 ? ">SIZE" : ""});
  for (const auto& each : figures.windows) {
    rows.add({fmt::format("{:.3f} s", static_cast<double>(each.start_ms) / 1000), std::to_string(each.requests),
              std::to_string(each.references), share_text(each.hit_blocks, each.references),
              std::to_string(each.distinct),
              form.bytes_per_token > 0 ? approximate_bytes(bytes_touched(each.distinct, read, form)) : ""});
  }
  return "OVER TIME, in blocks\n" + rows.text();
}

}  // namespace

void add_figures(ordered_json& object, const read_trace& read, const trace_figures& figures, const figure_form& form) {
  const auto& reuse = figures.reuse;
  object["reuse_distance"] = nullptr;
  object["reuse_ms"] = nullptr;
  if (reuse) {
    object["reuse_distance"] = {{"cold", reuse->cold}, {"below", powers_json(reuse->distances)}};
    if (figures.has_times) object["reuse_ms"] = {{"below", powers_json(reuse->times)}};
  }
  object["frequency"] = ordered_json::array();
  for (const auto& each : figures.uses.frequency) {
    object["frequency"].push_back(ordered_json::array({each.uses, each.blocks}));
  }
  object["one_use_share"] = figures.uses.one_use_share;
  object["gini"] = figures.uses.gini;
  object["helpless"] = {{"requests", figures.helpless.requests}, {"share", figures.helpless.share}};
  object["engine_hits"] = engine_json(figures);
  object["sharing"] = {{"sessions", sharing_json(figures.sessions)}, {"instances", sharing_json(figures.instances)}};
  add_tree(object, read, figures, form.top);
  object["turns"] = turns_json(figures);
  object["block_sizes"] = sizes_json(figures);
  object["ttl"] = ttls_json(figures);
  if (form.has_windows) object["over_time"] = figures.has_times ? windows_json(read, figures, form) : nullptr;
  object["omitted"] = ordered_json::object();
  for (const omitted_figure& each : figures.omitted) object["omitted"][std::string(each.name)] = each.reason;
}

std::string figures_text(const read_trace& read, const simulation::trace& requests, const trace_figures& figures,
                         const figure_form& form) {
  std::string text =
      fmt::format("NO CAPACITY HELPS {} requests ({})\n\n", figures.helpless.requests, percent(figures.helpless.share));
  if (figures.engine) text += engine_text(*figures.engine, requests.tokens()) + "\n";
  if (figures.reuse) text += reuse_text(*figures.reuse, requests.stream().size(), figures.has_times) + "\n";
  text += uses_text(figures.uses) + "\n";
  text += sharing_text(figures);
  if (figures.tree) text += tree_table(read, *figures.tree, form.top) + "\n";
  if (figures.turns) text += turns_text(*figures.turns) + "\n";
  if (figures.sizes) text += sizes_text(*figures.sizes, requests.tokens()) + "\n";
  if (figures.ttls) text += ttls_text(*figures.ttls, requests.tokens()) + "\n";
  if (form.has_windows && figures.has_times) text += windows_text(read, figures, form) + "\n";
  for (const omitted_figure& each : figures.omitted) text += fmt::format("without {}: {}\n", each.name, each.reason);
  return text;
}

}  // namespace cenote::optimize
