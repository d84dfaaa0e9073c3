#include "commands/bench/optimize_replay.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "commands/bench/support.hpp"
#include "commands/bench/trace_lines.hpp"
#include "commands/programs.hpp"
#include "core/unique_fd.hpp"
#include "keeper/child_process.hpp"
#include "simulation/workload.hpp"

namespace cenote::bench::optimize_replay {

namespace {

using nlohmann::json;
using simulation::trace;

constexpr double percent = 100;
constexpr double lru_points = 0.5;
constexpr double tier_points = 1.5;
constexpr double middle_percent = 5;
constexpr double late_percent = 15;

/// The tiers of a plan.
struct plan_case {
  std::string name;
  std::vector<std::string> tiers;
  std::uint32_t blocks = 0;  ///< of the last tier
  double points = 0;         ///< that plan and replay may be apart
};

/// The object that the command prints; one whose replay is too far from the plan is an answer, too.
result<json> answer_of(const std::vector<std::string>& arguments, const std::string& path) {
  const unique_fd target(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!target) return fail_errno("open", path);
  child_process::setup setup{.command = {"cenote"}, .program = node_program(), .output = target.get()};
  setup.command.insert(setup.command.end(), arguments.begin(), arguments.end());
  if (const auto ended = run_to_end(setup); !ended) return std::unexpected(ended.error());
  std::ifstream text(path);
  auto object = json::parse(text, nullptr, false);
  if (object.is_discarded() || !object.contains("verify") || !object["verify"].is_object()) {
    return fail(error_code::system, "cenote optimize plan --verify gave no answer");
  }
  return object["verify"];
}

/// The distance between plan and replay.
void add_distance(std::string name, double distance, const char* unit, double bound_distance, report& out) {
  out.add({.bench = "optimize",
           .name = std::move(name),
           .value = distance,
           .unit = unit,
           .low = distance,
           .high = distance,
           .promise = {bound::kind::value_at_most, bound_distance}});
}

void add_first_token(const json& verify, const std::string& name, const char* quantile, double bound_percent,
                     report& out) {
  const auto planned = verify["ttft_planned"][quantile].get<double>();
  const auto replayed = verify["ttft_replayed"][quantile].get<double>();
  const double apart = planned > 0 ? std::abs(replayed / planned - 1) * percent : 0;
  add_distance(fmt::format("{}: ttft {}, plan and replay apart", name, quantile), apart, "%", bound_percent, out);
}

result<void> measure_plan(const std::string& workload, const std::string& log, const plan_case& plan,
                          const std::string& answer, report& out) {
  std::vector<std::string> arguments{
      "optimize", "plan",        log,    "--prefill",         "8000@4096", "--attention-pivot",
      "off",      "--objective", "hits", "--bytes-per-token", "131072",    "--verify",
      "--json"};
  for (const std::string& each : plan.tiers) arguments.insert(arguments.end(), {"--tier", each});
  const auto verify = answer_of(arguments, answer);
  if (!verify) return std::unexpected(verify.error());
  const std::string name = fmt::format("{}, {}", workload, plan.name);
  const auto points = (*verify)["points_apart"].get<double>();
  add_distance(fmt::format("{}: hits, plan and replay apart", name), points, "points", plan.points, out);
  add_first_token(*verify, name, "p50", middle_percent, out);
  add_first_token(*verify, name, "p90", late_percent, out);
  return {};
}

/// DRAM for a tenth of the blocks, alone and over NVMe for half of them.
std::vector<plan_case> cases_for(const trace& requests) {
  constexpr std::uint32_t dram_part = 10;
  constexpr std::uint32_t nvme_part = 2;
  const std::uint32_t small = std::max(1U, requests.distinct() / dram_part);
  const std::uint32_t large = std::max(1U, requests.distinct() / nvme_part);
  const std::string dram = "dram:0.1ms:5GB/s";
  return {{.name = "DRAM", .tiers = {dram}, .blocks = small, .points = lru_points},
          {.name = "DRAM and NVMe",
           .tiers = {fmt::format("{}:{}", dram, small), "nvme:1ms:1GB/s"},
           .blocks = large,
           .points = tier_points}};
}

}  // namespace

result<void> measure_plans(const std::string& directory, report& out) {
  for (const std::string workload : {"chat:requests=3000", "agents:requests=3000", "rag:requests=3000"}) {
    const auto requests = simulation::generate(workload);
    if (!requests) return std::unexpected(requests.error());
    const std::string log = directory + "/plan.jsonl";
    if (auto written = write_lines(*requests, log); !written) return written;
    for (const plan_case& each : cases_for(*requests)) {
      const std::string name = workload.substr(0, workload.find(':'));
      if (auto done = measure_plan(name, log, each, directory + "/plan.json", out); !done) return done;
    }
  }
  return {};
}

}  // namespace cenote::bench::optimize_replay
