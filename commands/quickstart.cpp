#include "commands/quickstart.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/replay/run.hpp"
#include "core/units.hpp"
#include "simulation/workload.hpp"

namespace cenote {

namespace {

constexpr std::string_view workload = "chat:requests=300";
constexpr std::uint64_t block_bytes = 64 * KiB;
constexpr double prefill_rate = 8'000;  // tokens a second: a model of 8 billion parameters on a GPU of 2022

struct quickstart_options {
  bool as_json = false;
};

replay::run_options small_run() {
  replay::run_options options;
  options.trace = std::string(workload);
  options.engines = 2;
  options.block_bytes = block_bytes;
  options.nvme = 0;
  options.quiet = true;
  return options;
}

std::string json_of(const replay::replay_result& ran) {
  const auto& sums = *ran.sums;
  const nlohmann::ordered_json object{{"requests", sums.requests.get()},
                                      {"engines", ran.engines.size()},
                                      {"tokens", sums.tokens.get()},
                                      {"hit_tokens", sums.hit_tokens.get()},
                                      {"hit_ratio", ran.hit_ratio()},
                                      {"bytes_read", sums.bytes_read.get()},
                                      {"bytes_stored", sums.bytes_stored.get()},
                                      {"seconds", ran.seconds},
                                      {"wrong_blocks", sums.wrong.get()},
                                      {"verified_bytes", sums.verified_bytes.get()}};
  return object.dump() + "\n";
}

std::string text_of(const replay::replay_result& ran) {
  const auto& sums = *ran.sums;
  const auto hits = static_cast<double>(sums.hit_tokens.get());
  return fmt::format(
      "A node with {} of memory ran for {:.1f} s. {} engine processes asked it for the blocks of {} made prompts, "
      "turns of\n"
      "chats with shared system prompts: {:.0f} % of {:.1f} million tokens were there, stored by one of the engines "
      "before. They\n"
      "read {} and stored {}; {} were compared, all were right.\n\n"
      "An engine that computes {:.0f} tokens a second would have computed {:.0f} s for these hits.\n\n"
      "Next:\n"
      "  cenote node                               a node of this machine; engines find it without an option\n"
      "  vllm serve MODEL --kv-transfer-config '{{\"kv_connector\": \"CenoteConnector\",\n"
      "      \"kv_connector_module_path\": \"cenote.vllm\", \"kv_role\": \"kv_both\",\n"
      "      \"kv_load_failure_policy\": \"recompute\"}}'\n"
      "  cenote top                                what happens on it\n"
      "  cenote doctor                             what this machine's settings cost\n"
      "  cenote optimize curve TRACE.jsonl         how much memory your own requests would need\n",
      format_bytes(ran.dram_capacity), ran.seconds, ran.engines.size(), sums.requests.get(), 100 * ran.hit_ratio(),
      static_cast<double>(sums.tokens.get()) / 1e6, approximate_bytes(sums.bytes_read.get()),
      approximate_bytes(sums.bytes_stored.get()), approximate_bytes(sums.verified_bytes.get()), prefill_rate,
      hits / prefill_rate);
}

exit_code run_quickstart(const quickstart_options& options) {
  watch_for_interruption();
  const auto requests = simulation::generate(workload);
  if (!requests) return failed_with(requests.error());
  const auto ran = replay::run(*requests, small_run());
  if (interrupted()) return exit_code::ended_at_once;
  if (!ran) return failed_with(ran.error());
  if (!ran->failures.empty()) return failed_with({error_code::internal, ran->failures.front()});
  fmt::print("{}", options.as_json ? json_of(*ran) : text_of(*ran));
  return exit_code::orderly;
}

}  // namespace

void add_quickstart(CLI::App& app) {
  auto* command = app.add_subcommand("quickstart", "Try a node with two engines on this machine; nothing stays");
  auto options = std::make_shared<quickstart_options>();
  command->add_flag("--json", options->as_json, "One object");
  command->callback([options] { end_with(run_quickstart(*options)); });
}

}  // namespace cenote
