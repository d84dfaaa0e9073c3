#include "commands/optimize/tree_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "commands/optimize/trace_summary.hpp"
#include "core/text.hpp"

namespace cenote::optimize {

namespace {

using simulation::prefix_tree;
using simulation::tree_run;

/// The numbers of the runs, ascending.
std::vector<std::uint32_t> hottest_with_parents(const prefix_tree& tree, std::size_t top) {
  std::vector<bool> is_chosen(tree.runs().size());
  for (const std::uint32_t each : tree.hottest(top)) {
    std::optional<std::uint32_t> run = each;
    for (; run && !is_chosen[*run]; run = tree.runs()[*run].parent) is_chosen[*run] = true;
  }
  std::vector<std::uint32_t> chosen;
  for (std::uint32_t run = 0; run < is_chosen.size(); ++run) {
    if (is_chosen[run]) chosen.push_back(run);
  }
  return chosen;
}

std::string json_tree(const read_trace& read, const prefix_tree& tree, std::size_t top) {
  nlohmann::ordered_json object{{"block_tokens", read.requests.block_tokens()},
                                {"all_runs", tree.runs().size()},
                                {"runs", nlohmann::ordered_json::array()}};
  for (const std::uint32_t number : hottest_with_parents(tree, top)) {
    const tree_run& run = tree.runs()[number];
    object["runs"].push_back({{"run", number},
                              {"parent", run.parent ? nlohmann::ordered_json(*run.parent) : nullptr},
                              {"instance", instance_name(read, run.instance)},
                              {"depth", run.depth},
                              {"blocks", run.blocks},
                              {"uses", run.uses},
                              {"tokens_saved", run.tokens_saved}});
  }
  return object.dump() + "\n";
}

/// Inside of quotes; Graphviz takes what begins with & as a character of HTML.
std::string dot_text(const std::string& name) {
  std::string text;
  for (const char each : printable(name)) {
    if (each == '"' || each == '\\') text += '\\';
    text += each == '&' ? "&amp;" : std::string(1, each);
  }
  return text;
}

std::string dot_tree(const read_trace& read, const prefix_tree& tree, std::size_t top) {
  std::string text = "digraph prefixes {\n  node [shape=box];\n";
  for (const std::uint32_t number : hottest_with_parents(tree, top)) {
    const tree_run& run = tree.runs()[number];
    text += fmt::format("  r{} [label=\"{}\\nblocks {} to {}\\n{} uses\\n{} tokens saved\"];\n", number,
                        dot_text(instance_name(read, run.instance)), run.depth, run.depth + run.blocks - 1, run.uses,
                        run.tokens_saved);
    if (run.parent) text += fmt::format("  r{} -> r{};\n", *run.parent, number);
  }
  return text + "}\n";
}

}  // namespace

result<void> check_tree_file(const std::string& path) {
  if (path.ends_with(".json") || path.ends_with(".dot")) return {};
  return fail(error_code::invalid_argument, fmt::format("--tree {}: a name that ends in .json or .dot is right", path));
}

std::string tree_text(const std::string& path, const read_trace& read, const prefix_tree& tree, std::size_t top) {
  return path.ends_with(".dot") ? dot_tree(read, tree, top) : json_tree(read, tree, top);
}

}  // namespace cenote::optimize
