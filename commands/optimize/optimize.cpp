#include "commands/optimize/optimize.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "commands/common.hpp"
#include "commands/optimize/advise.hpp"
#include "commands/optimize/analyze.hpp"
#include "commands/optimize/calibrate.hpp"
#include "commands/optimize/compare.hpp"
#include "commands/optimize/cost.hpp"
#include "commands/optimize/curve.hpp"
#include "commands/optimize/model.hpp"
#include "commands/optimize/plan.hpp"
#include "commands/optimize/rank.hpp"
#include "simulation/simulation.hpp"

namespace cenote {

namespace {

constexpr std::uint32_t most_top = 1'000'000;
constexpr std::uint32_t most_seed = 4'294'967'295;
constexpr std::uint64_t most_token_bytes = std::uint64_t{1} << 32;

void add_curve(CLI::App& family) {
  auto* command = family.add_subcommand("curve", "Hits of each capacity, and the capacities for shares of them");
  auto options = std::make_shared<optimize::curve_options>();
  options->trace.add_to(*command);
  command->add_option("--order", options->order, "How a request uses its blocks: fwd is head to tail, rev tail to head")
      ->check(CLI::IsMember({"fwd", "rev"}))
      ->capture_default_str();
  command->add_option("--policies", options->policies, "Among " + simulation::simulated_policies())
      ->capture_default_str();
  command->add_option("--capacities", options->capacities,
                      "A list of numbers of blocks and FIRST:LAST:STEP as in 1k:256k:2x; k is 1,000. Without it eight "
                      "that double up to all distinct blocks");
  command->add_option(
      "--quota", options->quota,
      "Blocks of each instance, which has an LRU of its own then: NAME=BLOCKS,NAME+NAME=BLOCKS; with + they share one");
  options->counting.add_to(*command);
  command->add_option(
      "--water-levels", options->water_levels,
      "HIGH:LOW[:BATCH], as in 97%:94%: when a request leaves more than HIGH of a capacity full, blocks "
      "go, BATCH at a time, until it is LOW");
  command->add_flag("--sample", options->sample.is_wanted,
                    "Estimate from a sample, with standard errors, in memory that does not grow with the trace");
  command->add_option(
      "--sample-blocks", options->sample.blocks,
      "Blocks of the sample, 1,024 to 16,777,216, about 60 bytes each; without it 262,144. Policies other than "
      "lru have a sixteenth for each capacity");
  command->add_option("--sample-seed", options->sample.seed, "Another number draws another sample; without it 1")
      ->check(CLI::Range(0U, most_seed));
  command->add_flag("--by-instance", options->by_instance, "Also curves of each instance with a cache of its own");
  command->add_flag("--json", options->as_json, "One object");
  options->report.add_to(*command);
  command->footer("belady goes from head to tail and tblru in an order of its own, whatever --order says.");
  command->callback([options] { end_with(optimize::run_curve(*options)); });
}

void add_model(CLI::App& family) {
  auto* command = family.add_subcommand("model", "Bytes a token, rate of prefill, and from which length on loads pay");
  auto options = std::make_shared<optimize::model_options>();
  options->add_to(*command);
  command->callback([options] { end_with(optimize::run_model(*options)); });
}

void add_cost(CLI::App& family) {
  auto* command = family.add_subcommand("cost", "Times to first token, GPU seconds, replicas and money by capacity");
  auto options = std::make_shared<optimize::cost_options>();
  options->add_to(*command);
  command->callback([options] { end_with(optimize::run_cost(*options)); });
}

void add_calibrate(CLI::App& family) {
  auto* command = family.add_subcommand("calibrate", "Rate, pivot and constant of a real engine, from measured times");
  auto options = std::make_shared<optimize::calibrate_options>();
  options->add_to(*command);
  command->callback([options] { end_with(optimize::run_calibrate(*options)); });
}

void add_analyze(CLI::App& family) {
  auto* command = family.add_subcommand("analyze", "When blocks come again, how often, for whom; the tree of prefixes");
  auto options = std::make_shared<optimize::analyze_options>();
  options->trace.add_to(*command);
  command->add_flag("--by-instance", options->by_instance, "Also the analyses of each instance's requests alone");
  command->add_option("--tree", options->tree_file,
                      "Write the prefixes that save the most to FILE.json, or to FILE.dot for Graphviz");
  command->add_option("--top", options->top, "Runs of blocks that are shown, and written by --tree")
      ->check(CLI::Range(1U, most_top))
      ->capture_default_str();
  command->add_option("--over-time", options->window, "Figures of windows of that length, as in 60s");
  command
      ->add_option("--bytes-per-token", options->bytes_per_token, "Bytes of a token's keys and values, for --over-time")
      ->check(CLI::Range(std::uint64_t{1}, most_token_bytes));
  command->add_option("--capacity", options->capacity,
                      "Of a cache with other block sizes, in the trace's blocks; without it a quarter of the distinct "
                      "ones");
  command->add_flag("--json", options->as_json, "One object");
  options->report.add_to(*command);
  command->callback([options] { end_with(optimize::run_analyze(*options)); });
}

void add_plan(CLI::App& family) {
  auto* command = family.add_subcommand("plan", "The cheapest tiers and replicas, as a fragment of cenote.toml");
  auto options = std::make_shared<optimize::plan_options>();
  options->add_to(*command);
  command->callback([options] { end_with(optimize::run_plan(*options)); });
}

void add_rank(CLI::App& family) {
  auto* command = family.add_subcommand("rank", "The service that gains most by memory, and a budget for all");
  auto options = std::make_shared<optimize::rank_options>();
  options->add_to(*command);
  command->callback([options] { end_with(optimize::run_rank(*options)); });
}

void add_advise(CLI::App& family) {
  auto* command = family.add_subcommand("advise", "What a running node would hit with other capacities");
  auto options = std::make_shared<optimize::advise_options>();
  options->add_to(*command);
  command->callback([options] { end_with(optimize::run_advise(*options)); });
}

}  // namespace

void add_optimize(CLI::App& app) {
  auto* family = app.add_subcommand("optimize", "What a cache would have brought, from recorded requests");
  family->require_subcommand(1);
  add_curve(*family);
  add_analyze(*family);
  add_model(*family);
  add_cost(*family);
  add_calibrate(*family);
  add_plan(*family);
  add_rank(*family);
  add_advise(*family);
  optimize::add_compare(*family);
}

}  // namespace cenote
