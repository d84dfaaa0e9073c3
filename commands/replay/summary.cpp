#include "commands/replay/summary.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <utility>

#include "commands/replay/page.hpp"
#include "commands/replay/several_nodes.hpp"
#include "commands/table.hpp"
#include "core/units.hpp"

namespace cenote::replay {

namespace {

using nlohmann::ordered_json;

constexpr double ns_per_s = 1e9;
constexpr double ns_per_us = 1e3;
constexpr std::array<std::pair<const char*, double>, 4> percentiles{
    {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1.0}}};

double seconds(const tally_word& nanoseconds) {
  return static_cast<double>(nanoseconds.get()) / ns_per_s;
}

std::string rate(double bytes, double time) {
  return time > 0 ? approximate_bytes(static_cast<std::uint64_t>(bytes / time)) + "/s" : "-";
}

std::string duration(std::uint64_t nanoseconds) {
  return approximate_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds)));
}

/// Name and value, one a line.
class lines {
 public:
  void add(std::string name, std::string value) {
    text_ += fmt::format("  {:<22}{}\n", std::move(name), std::move(value));
  }
  void head(std::string_view title) { text_ += fmt::format("\n{}\n", title); }
  void raw(const std::string& text) { text_ += text; }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// " (1.00 %, 2.00 %, 3.00 % by tier)".
std::string simulated_by_tier(const simulated_node& simulated) {
  std::string text;
  for (const double each : simulated.by_tier) text += (text.empty() ? "" : ", ") + percent(each);
  return fmt::format(" ({} by tier)", text);
}

void add_work(const replay_result& replay, lines& out) {
  const tally& sums = *replay.sums;
  out.head("WORK");
  out.add("requests",
          fmt::format("{} of {} in {:.1f} s ({:.1f}/s)", sums.requests.get(), replay.planned, replay.seconds,
                      replay.seconds > 0 ? static_cast<double>(sums.requests.get()) / replay.seconds : 0.0));
  if (replay.left_out > 0)
    out.add("left out", fmt::format("{} of the trace's {} lines", replay.left_out, replay.lines));
  out.add("blocks", fmt::format("{}, {} distinct in the trace", sums.blocks.get(), replay.distinct_blocks));
  out.add("tokens", fmt::format("{}", sums.tokens.get()));
  out.add("hit ratio",
          fmt::format("{} of the tokens ({}{} from DRAM, {} from NVMe{})", percent(replay.hit_ratio()),
                      replay.has_gpu() ? fmt::format("{} from the GPU, ", sums.gpu_tokens.get()) : "",
                      sums.upper_tokens.get(), replay.nvme_tokens(),
                      replay.has_remote ? fmt::format(", {} from the remote tier", sums.remote_tokens.get()) : ""));
  if (replay.has_gpu()) {
    out.add("blocks by tier", fmt::format("{} GPU + {} DRAM + {} NVMe{} + {} computed", sums.gpu_hits.get(),
                                          sums.upper_hits.get(), sums.lower_hits.get(),
                                          replay.has_remote ? fmt::format(" + {} remote", sums.remote_hits.get()) : "",
                                          sums.missed.get()));
  }
  if (replay.simulated) {
    out.add("the same, simulated", fmt::format("{} of the tokens{}", percent(replay.simulated->hit_ratio),
                                               replay.has_gpu() ? simulated_by_tier(*replay.simulated) : ""));
  }
  for (const auto& [name, value] : pool_lines(replay)) out.add(name, value);
  if (replay.settings.prefill_rate > 0 && sums.time_without.get() > 0) {
    const double with = seconds(sums.time_with);
    const double without = seconds(sums.time_without);
    const double none = static_cast<double>(sums.tokens.get()) / replay.settings.prefill_rate;
    out.add("time of all requests",
            fmt::format("{:.1f} s at {:.0f} tokens/s computed; {:.1f} s had only {} hit, {:.1f} s without a cache",
                        with, replay.settings.prefill_rate, without, replay.first_tier(), none));
  }
  out.add("stored", fmt::format("{} blocks; {} were there already, {} found no room", sums.stored.get(),
                                sums.present.get(), sums.refused.get()));
  out.add("verified", fmt::format("{} ({}), {} wrong blocks", approximate_bytes(sums.verified_bytes.get()),
                                  name_of(replay.settings.verify), sums.wrong.get()));
}

void add_latencies(const replay_result& replay, lines& out) {
  const tally& sums = *replay.sums;
  table rows({"LATENCY OF A REQUEST'S", ">COUNT", ">p50", ">p90", ">p99", ">MAX"});
  const auto add = [&](const char* name, const histogram& counts) {
    if (counts.count() == 0) return;
    rows.add({name, std::to_string(counts.count()), duration(counts.quantile(0.5)), duration(counts.quantile(0.9)),
              duration(counts.quantile(0.99)), duration(counts.maximum())});
  };
  add("match", sums.match);
  add("prefetch", sums.prefetch);
  add("load", sums.load);
  add("put", sums.put);
  add("start after it was due", sums.late);
  add("whole, with computing", sums.with_lower);
  add(replay.has_gpu() ? "whole, only GPU hit" : "whole, only DRAM hit", sums.without_lower);
  out.raw("\n" + rows.text(0));
}

void add_bytes(const replay_result& replay, lines& out) {
  const tally& sums = *replay.sums;
  const auto bytes = [&](std::uint64_t moved) {
    return fmt::format("{} ({})", approximate_bytes(moved), rate(static_cast<double>(moved), replay.seconds));
  };
  out.head("BYTES");
  out.add(fmt::format("{} to engines", replay.first_tier()), bytes(sums.bytes_read.get()));
  out.add(fmt::format("engines to {}", replay.first_tier()), bytes(sums.bytes_stored.get()));
  if (replay.has_gpu()) {
    out.add("GPU to DRAM", bytes(replay.moved.gpu_written));
    out.add("DRAM to GPU", bytes(replay.moved.gpu_read));
  }
  if (replay.nvme_capacity > 0) {
    out.add("DRAM to NVMe", bytes(replay.moved.written_down));
    out.add("NVMe to DRAM", bytes(replay.moved.read_up));
  }
  if (replay.has_remote) {
    out.add("DRAM to remote", bytes(replay.moved.remote_put));
    out.add("remote to DRAM", bytes(replay.moved.remote_got));
  }
}

/// What the node compared with computing, and by which measure of its disk.
void add_gate(const replay_result& replay, lines& out) {
  const node_movement& moved = replay.moved;
  out.add(replay.has_gpu() ? "  of DRAM's own" : "  of these",
          fmt::format("{} could not win, {} cut; {} probes", moved.cannot_win, moved.cut, moved.probes));
  if (moved.compared > 0) {
    out.add("  compared", fmt::format("{}: of {:.1f} s to compute {:.1f} s saved, {:.1f} s waited, {:.1f} s in vain",
                                      moved.compared, moved.recompute_s, moved.saved_s, moved.waited_s, moved.lost_s));
  }
  if (replay.disk.bytes_per_s > 0) {
    out.add("  disk, as measured",
            fmt::format("{}, the first after {:.1f} ms, {:.0f} s ago", rate(replay.disk.bytes_per_s, 1),
                        replay.disk.latency_s * 1e3, replay.disk.age_s));
  }
}

void add_node(const replay_result& replay, lines& out) {
  const tally& sums = *replay.sums;
  out.head(replay.nodes.size() > 1 ? "ALL NODES" : "NODE");
  const std::string gpu = fmt::format("{} {}, policy {}; ", replay.settings.device.data(),
                                      approximate_bytes(replay.gpu_capacity), replay.gpu_policy);
  out.add("tiers", fmt::format("{}DRAM {}, policy {}; {}{}", replay.has_gpu() ? gpu : "",
                               approximate_bytes(replay.dram_capacity), replay.policy,
                               replay.nvme_capacity > 0 ? "NVMe " + approximate_bytes(replay.nvme_capacity) : "no NVMe",
                               replay.has_remote ? "; remote" : ""));
  out.add("evicted", fmt::format("{} blocks from DRAM, {} of them without a copy below; {} from NVMe",
                                 replay.moved.evicted, replay.moved.dropped, replay.moved.lower_evicted));
  if (replay.has_gpu()) {
    out.add("evicted from the GPU", fmt::format("{} blocks, {} of them without a copy in DRAM",
                                                replay.moved.gpu_evicted, replay.moved.gpu_dropped));
  }
  if (replay.has_remote) {
    out.add("remote tier", fmt::format("{} blocks not put, {} transfers without an answer in time",
                                       replay.moved.remote_not_put, replay.moved.remote_unreachable));
  }
  if (sums.prefetches.get() > 0) {
    out.add("prefetches", fmt::format("{}, {} given up after {}", sums.prefetches.get(), sums.prefetches_cut.get(),
                                      duration(replay.settings.prefetch_wait_ns)));
    add_gate(replay, out);
  }
  out.add("puts that waited",
          replay.moved.put_waits ? std::to_string(*replay.moved.put_waits) : "not counted by this node");
  if (replay.restarts > 0) out.add("restarts", fmt::format("{} of the worker during the replay", replay.restarts));
  out.head("PROCESSOR TIME");
  const efficiency ratio = efficiency_of(replay);
  if (replay.node_cpu_seconds) {
    out.add("node", fmt::format("{:.2f} s: {} a CPU-second, {:.2f} of memcpy's", *replay.node_cpu_seconds,
                                rate(static_cast<double>(replay.bytes_moved()), *replay.node_cpu_seconds), ratio.node));
    const double both = *replay.node_cpu_seconds + seconds(sums.library_cpu);
    if (ratio.library > 0)
      out.add("node and library", fmt::format("{:.2f} s: {} a CPU-second, {:.2f} of memcpy's", both,
                                              rate(static_cast<double>(replay.bytes_moved()), both), ratio.library));
  }
  out.add("apart from these", fmt::format("{:.2f} s made blocks, {:.2f} s verified them", seconds(sums.generate_cpu),
                                          seconds(sums.verify_cpu)));
  out.add("memcpy, in this run", rate(replay.memcpy_rate, 1));
}

ordered_json latency_json(const histogram& counts) {
  ordered_json one{{"count", counts.count()}};
  for (const auto& [name, q] : percentiles) one[name] = static_cast<double>(counts.quantile(q)) / ns_per_us;
  return one;
}

ordered_json gate_json(const node_movement& moved, const disk_estimate& disk) {
  return {{"bytes_per_s", disk.bytes_per_s}, {"latency_s", disk.latency_s},    {"measured_age_s", disk.age_s},
          {"compared", moved.compared},      {"cannot_win", moved.cannot_win}, {"cut", moved.cut},
          {"probes", moved.probes},          {"waited_s", moved.waited_s},     {"recompute_s", moved.recompute_s},
          {"saved_s", moved.saved_s},        {"lost_s", moved.lost_s}};
}

/// What the same requests hit in a simulation; null: it was not simulated.
ordered_json simulated_json(const replay_result& replay) {
  if (!replay.simulated) return nullptr;
  ordered_json all{{"policy", replay.policy},
                   {"dram_blocks", replay.simulated->dram_blocks},
                   {"nvme_blocks", replay.simulated->nvme_blocks},
                   {"prefix_hits", replay.simulated->prefix_hits},
                   {"hit_ratio", replay.simulated->hit_ratio}};
  if (replay.has_gpu()) {
    all.update({{"gpu_policy", replay.gpu_policy},
                {"gpu_blocks", replay.simulated->gpu_blocks},
                {"by_tier", replay.simulated->by_tier}});
  }
  return all;
}

ordered_json node_json(const replay_result& replay) {
  ordered_json all{
      {"dram_capacity", replay.dram_capacity},
      {"nvme_capacity", replay.nvme_capacity},
      {"remote", replay.has_remote},
      {"policy", replay.policy},
      {"evicted", replay.moved.evicted},
      {"demotions_dropped", replay.moved.dropped},
      {"nvme_evicted", replay.moved.lower_evicted},
      {"remote_not_put", replay.moved.remote_not_put},
      {"remote_unreachable", replay.moved.remote_unreachable},
      {"checksum_errors", replay.moved.checksum_errors},
      {"restarts", replay.restarts},
      {"gate", gate_json(replay.moved, replay.disk)},
      {"put_waits", replay.moved.put_waits ? ordered_json(*replay.moved.put_waits) : ordered_json(nullptr)}};
  if (replay.has_gpu()) {
    all.update({{"gpu", replay.settings.device.data()},
                {"gpu_capacity", replay.gpu_capacity},
                {"gpu_policy", replay.gpu_policy},
                {"gpu_evicted", replay.moved.gpu_evicted},
                {"gpu_demotions_dropped", replay.moved.gpu_dropped}});
  }
  return all;
}

ordered_json engines_json(const replay_result& replay) {
  ordered_json all = ordered_json::array();
  for (const auto& each : replay.engines) {
    all.push_back({{"engine", each.number + 1},
                   {"planned", each.planned},
                   {"served", each.served},
                   {"tokens", each.tokens},
                   {"hit_tokens", each.hit_tokens},
                   {"bytes_read", each.bytes_read},
                   {"bytes_stored", each.bytes_stored},
                   {"orderly", each.orderly},
                   {"end", each.end},
                   {"message", each.message}});
  }
  return all;
}

ordered_json timeline_json(const replay_result& replay) {
  ordered_json all = ordered_json::array();
  for (const sample& each : replay.timeline) {
    all.push_back({{"seconds", each.seconds},
                   {"requests", each.requests},
                   {"tokens", each.tokens},
                   {"hit_tokens", each.hit_tokens},
                   {"hit_tokens_dram", each.upper_tokens},
                   {"hit_tokens_remote", each.remote_tokens},
                   {"bytes_read", each.bytes_read},
                   {"bytes_stored", each.bytes_stored},
                   {"dram_to_nvme", each.moved.written_down},
                   {"nvme_to_dram", each.moved.read_up},
                   {"dram_to_remote", each.moved.remote_put},
                   {"remote_to_dram", each.moved.remote_got},
                   {"dram_used", each.dram_used},
                   {"nvme_used", each.nvme_used},
                   {"policy_at_work", each.at_work.empty() ? ordered_json(nullptr) : ordered_json(each.at_work)},
                   {"gate", gate_json(each.moved, each.disk)}});
    if (!replay.has_gpu()) continue;
    all.back().update({{"hit_tokens_gpu", each.gpu_tokens},
                       {"gpu_to_dram", each.moved.gpu_written},
                       {"dram_to_gpu", each.moved.gpu_read},
                       {"gpu_used", each.gpu_used}});
  }
  return all;
}

/// Of each block the tier that had it when its request came, the upper one first.
ordered_json hits_json(const replay_result& replay) {
  const tally& sums = *replay.sums;
  ordered_json all;
  all["prefix_hits"] = sums.gpu_hits.get() + sums.upper_hits.get() + sums.lower_hits.get() + sums.remote_hits.get();
  if (replay.has_gpu()) all["prefix_hits_gpu"] = sums.gpu_hits.get();
  all["prefix_hits_dram"] = sums.upper_hits.get();
  all["prefix_hits_nvme"] = sums.lower_hits.get();
  all["prefix_hits_remote"] = sums.remote_hits.get();
  if (replay.has_gpu()) all["misses"] = sums.missed.get();
  all["prefix_tokens"] = sums.hit_tokens.get();
  if (replay.has_gpu()) all["prefix_tokens_gpu"] = sums.gpu_tokens.get();
  all["prefix_tokens_dram"] = sums.upper_tokens.get();
  all["prefix_tokens_nvme"] = replay.nvme_tokens();
  all["prefix_tokens_remote"] = sums.remote_tokens.get();
  return all;
}

ordered_json bytes_json(const replay_result& replay) {
  const bool gpu = replay.has_gpu();
  ordered_json all{{gpu ? "gpu_to_engines" : "dram_to_engines", replay.sums->bytes_read.get()},
                   {gpu ? "engines_to_gpu" : "engines_to_dram", replay.sums->bytes_stored.get()}};
  if (gpu) {
    all["gpu_to_dram"] = replay.moved.gpu_written;
    all["dram_to_gpu"] = replay.moved.gpu_read;
  }
  all.update({{"dram_to_nvme", replay.moved.written_down},
              {"nvme_to_dram", replay.moved.read_up},
              {"dram_to_remote", replay.moved.remote_put},
              {"remote_to_dram", replay.moved.remote_got}});
  return all;
}

ordered_json curves_json(const replay_result& replay) {
  ordered_json all{{"capacities", replay.capacities}, {"hit_ratio", ordered_json::object()}};
  for (const auto& each : replay.curves) all["hit_ratio"][each.policy] = each.hit_ratio;
  return all;
}

ordered_json processor_json(const replay_result& replay) {
  ordered_json cpu{{"node_s", nullptr},
                   {"library_s", seconds(replay.sums->library_cpu)},
                   {"generate_s", seconds(replay.sums->generate_cpu)},
                   {"verify_s", seconds(replay.sums->verify_cpu)},
                   {"memcpy_bytes_per_cpu_s", replay.memcpy_rate},
                   {"node_of_memcpy", nullptr},
                   {"node_and_library_of_memcpy", nullptr}};
  if (replay.node_cpu_seconds) {
    const efficiency ratio = efficiency_of(replay);
    cpu["node_s"] = *replay.node_cpu_seconds;
    cpu["node_of_memcpy"] = ratio.node;
    if (ratio.library > 0) cpu["node_and_library_of_memcpy"] = ratio.library;
  }
  return cpu;
}

}  // namespace

std::string_view name_of(verify_mode mode) noexcept {
  switch (mode) {
    case verify_mode::none: return "none";
    case verify_mode::sample: return "sample";
    case verify_mode::all: return "all";
  }
  return "?";
}

std::string_view name_of(access_mode mode) noexcept {
  return mode == access_mode::copy ? "copy" : "in-place";
}

std::string speed_text(double speed) {
  return speed > 0 ? fmt::format("{:g}x", speed) : "max";
}

efficiency efficiency_of(const replay_result& replay) {
  efficiency ratio;
  if (!replay.node_cpu_seconds || replay.memcpy_rate <= 0) return ratio;
  const auto moved = static_cast<double>(replay.bytes_moved());
  const double both = *replay.node_cpu_seconds + seconds(replay.sums->library_cpu);
  if (*replay.node_cpu_seconds > 0) ratio.node = moved / *replay.node_cpu_seconds / replay.memcpy_rate;
  // In place nothing is copied, so there is nothing to compare.
  if (both > 0 && replay.settings.access == access_mode::copy) ratio.library = moved / both / replay.memcpy_rate;
  return ratio;
}

std::string summary_text(const replay_result& replay) {
  lines out;
  out.raw(fmt::format("{}: {} engines, speed {}, blocks of {}, {}\n", replay.trace, replay.settings.engines,
                      speed_text(replay.settings.speed), format_bytes(replay.settings.block_bytes),
                      name_of(replay.settings.access)));
  add_work(replay, out);
  if (replay.nodes.size() > 1) out.raw("\n" + text_table(node_rows(replay), 0));
  add_latencies(replay, out);
  add_bytes(replay, out);
  add_node(replay, out);
  return out.take();
}

ordered_json summary_json(const replay_result& replay) {
  const tally& sums = *replay.sums;
  ordered_json all{{"trace", replay.trace},
                   {"engines", replay.settings.engines},
                   {"speed", speed_text(replay.settings.speed)},
                   {"block_bytes", replay.settings.block_bytes},
                   {"access", name_of(replay.settings.access)},
                   {"verify", name_of(replay.settings.verify)},
                   {"seconds", replay.seconds},
                   {"lines", replay.lines},
                   {"left_out", replay.left_out},
                   {"planned", replay.planned},
                   {"requests", sums.requests.get()},
                   {"failed_requests", sums.failed.get()},
                   {"node_was_down", sums.down.get()},
                   {"blocks", sums.blocks.get()},
                   {"tokens", sums.tokens.get()}};
  all.update(hits_json(replay));
  all.update({{"hit_ratio", replay.hit_ratio()},
              {"stored", sums.stored.get()},
              {"present", sums.present.get()},
              {"refused", sums.refused.get()},
              {"wrong_blocks", sums.wrong.get()},
              {"verified_bytes", sums.verified_bytes.get()}});
  all["simulated"] = simulated_json(replay);
  all["nodes"] = nodes_json(replay);
  all["simulated_nodes"] = simulated_nodes_json(replay);
  all["latency_us"] = {
      {"match", latency_json(sums.match)},
      {"prefetch", latency_json(sums.prefetch)},
      {"load", latency_json(sums.load)},
      {"put", latency_json(sums.put)},
      {"late", latency_json(sums.late)},
      {"with_computing", latency_json(sums.with_lower)},
      {replay.has_gpu() ? "with_computing_gpu_only" : "with_computing_dram_only", latency_json(sums.without_lower)}};
  all["prefill_tokens_per_s"] =
      replay.settings.prefill_rate > 0 ? ordered_json(replay.settings.prefill_rate) : ordered_json(nullptr);
  all["request_seconds"] = {{"with_lower_tiers", seconds(sums.time_with)},
                            {replay.has_gpu() ? "gpu_only" : "dram_only", seconds(sums.time_without)}};
  all["bytes"] = bytes_json(replay);
  all["node"] = node_json(replay);
  all["prefetches"] = sums.prefetches.get();
  all["prefetches_cut"] = sums.prefetches_cut.get();
  all["cpu"] = processor_json(replay);
  all["engine_ends"] = engines_json(replay);
  all["from"] = json_of(replay.from);
  all["timeline"] = timeline_json(replay);
  all["curves"] = curves_json(replay);
  all["interrupted"] = replay.interrupted;
  all["failures"] = replay.failures;
  return all;
}

}  // namespace cenote::replay
