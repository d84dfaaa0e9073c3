#include "commands/optimize/sampled_answer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <new>
#include <utility>

#include "commands/common.hpp"
#include "commands/optimize/capacities.hpp"
#include "commands/optimize/miniature_sweep.hpp"
#include "commands/optimize/refusal.hpp"
#include "commands/optimize/time_checks.hpp"
#include "commands/replay/options.hpp"
#include "commands/table.hpp"
#include "core/count_text.hpp"
#include "core/key_sample.hpp"
#include "core/text.hpp"
#include "simulation/optimize/miniature_caches.hpp"
#include "simulation/optimize/sampled_curve.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using simulation::miniature_caches;
using simulation::sampled_curve;

constexpr std::size_t usual_blocks = std::size_t{1} << 18U;
constexpr std::size_t sample_share = 16;  // of the blocks of a sample, for each capacity of policies other than LRU

std::uint32_t whole(double blocks) {
  constexpr double most = 2147483648.0;  // of a number of blocks
  return static_cast<std::uint32_t>(std::clamp(std::round(blocks), 0.0, most));
}

/// `ratio` of all blocks is hit, with the standard error `error`.
sampled_point point_of(const replay::streamed_trace& read, std::uint32_t capacity, double ratio, double error) {
  const auto blocks = static_cast<double>(read.blocks);
  const auto tokens = static_cast<double>(std::max<std::uint64_t>(1, read.tokens));
  const auto hits = static_cast<std::uint64_t>(std::llround(std::clamp(ratio, 0.0, 1.0) * blocks));
  const std::uint64_t hit_tokens = hits * read.block_tokens;
  return {.capacity = capacity,
          .hit_blocks = hits,
          .hit_tokens = hit_tokens,
          .hit_ratio = static_cast<double>(hit_tokens) / tokens,
          .error = error * blocks * static_cast<double>(read.block_tokens) / tokens};
}

/// The curve of a sample as hits.
class hit_curve {
 public:
  hit_curve(const sampled_curve& sample, const replay::streamed_trace& read) : sample_(sample), read_(read) {}

  /// Below the longest request the order has other hits, and a sample has no estimate of them.
  [[nodiscard]] std::uint64_t least() const noexcept { return std::max(sample_.least(), sample_.longest()); }

  [[nodiscard]] std::optional<sampled_point> point(std::uint32_t capacity) const {
    if (capacity == 0 || read_.blocks == 0) return sampled_point{.capacity = capacity};
    if (capacity < least()) return std::nullopt;
    const auto found = sample_.estimate(capacity);
    if (!found) return std::nullopt;
    return point_of(read_, capacity, 1 - found->miss_ratio, found->error);
  }

  [[nodiscard]] double endless_hits() const noexcept {
    return std::max(0.0, static_cast<double>(read_.blocks) - sample_.endless().misses);
  }

  /// The smallest capacity with so much of what an endless cache hits, if that is estimated.
  [[nodiscard]] std::optional<sampled_point> with_share(double share) const {
    if (read_.blocks == 0) return point(0);
    const double wanted = (share * endless_hits() - 0.5) / static_cast<double>(read_.blocks);  // whole blocks
    const std::uint64_t floor = least();
    const auto found =
        sample_.smallest_with(wanted, floor, std::max<std::uint64_t>(floor, whole(sample_.endless().misses)));
    return found ? point(static_cast<std::uint32_t>(found->capacity)) : std::nullopt;
  }

 private:
  const sampled_curve& sample_;
  const replay::streamed_trace& read_;
};

}  // namespace

result<std::size_t> sample_size(const sample_options& options) {
  if (!options.is_wanted && !options.blocks.empty())
    return refuse("--sample-blocks: it is the size of a sample, which --sample takes");
  if (!options.is_wanted && options.seed)
    return refuse("--sample-seed: it draws the blocks of a sample, which --sample takes");
  if (options.blocks.empty()) return usual_blocks;
  const auto count = parse_block_count(options.blocks);
  if (!count) return std::unexpected(count.error().in("--sample-blocks"));
  if (*count < sampled_curve::fewest_sampled || *count > sampled_curve::most_sampled) {
    return refuse(fmt::format("--sample-blocks {}: a sample has {} to {} blocks", options.blocks,
                              sampled_curve::fewest_sampled, sampled_curve::most_sampled));
  }
  return *count;
}

namespace {

constexpr std::string_view lru_name = "lru";

/// The answer with the curve of LRU.
result<sampled_answer> measure_lru(const trace_options& trace, std::size_t size, std::uint64_t seed,
                                   const sample_request& request) {
  sampled_answer answer{.read = {}, .sampled = size, .seed = seed, .curves = {}, .shares = {}};
  const std::uint64_t salt = mixed_bits(seed);
  sampled_curve curve({.salt = salt, .sampled = size});
  std::vector<std::uint64_t> drawn;
  std::uint64_t first_ms = 0;
  // Keys that count up would spread more evenly over the places of a sample than a lot has it.
  auto read = trace.stream([&](std::span<const std::uint64_t> chain, std::uint64_t time_ms) {
    if (curve.requests() == 0) first_ms = time_ms;
    answer.has_times |= curve.requests() > 0 && time_ms != first_ms;
    drawn.resize(chain.size());
    std::ranges::transform(chain, drawn.begin(), [&](std::uint64_t key) { return mixed_bits(key + salt); });
    curve.add(drawn);
  });
  if (!read) return std::unexpected(read.error());
  answer.read = std::move(*read);
  answer.has_times |= answer.read.requests < 2;
  const hit_curve hits(curve, answer.read);
  answer.rate = curve.rate();
  answer.least = hits.least();
  answer.distinct = curve.endless().misses;
  answer.distinct_error = curve.endless().error;
  auto capacities = request.capacities;
  // An estimate of the distinct blocks may be below the longest request, below which no point is given.
  if (capacities.empty())
    capacities = doubled_points(whole(std::max(answer.distinct, static_cast<double>(hits.least()))));
  sampled_policy& lru = answer.curves.emplace_back(sampled_policy{std::string(lru_name), {}});
  for (const std::uint32_t each : capacities) {
    if (const auto point = hits.point(each)) lru.points.push_back(*point);
  }
  for (const double share : request.shares) {
    if (const auto point = hits.with_share(share)) answer.shares.push_back({share, *point});
  }
  return answer;
}

/// The file behind the path, as far as its changes show.
struct file_state {
  dev_t device = 0;
  ino_t number = 0;
  off_t size = 0;
  std::int64_t changed_s = 0;
  std::int64_t changed_ns = 0;

  bool operator==(const file_state&) const = default;
};

/// Refused: what cannot be read once more.
result<file_state> state_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return fail_errno("read", path);
  if (!S_ISREG(status.st_mode)) {
    return fail(error_code::unsupported,
                fmt::format("{} is no file: policies other than lru read the trace once more", path));
  }
  return file_state{.device = status.st_dev,
                    .number = status.st_ino,
                    .size = status.st_size,
                    .changed_s = status.st_mtim.tv_sec,
                    .changed_ns = status.st_mtim.tv_nsec};
}

/// No larger cache evicts anything: a quarter more than all blocks, since a part has more than its share by chance.
std::uint32_t endless_capacity(const sampled_answer& lru) {
  constexpr double margin = 1.25;
  constexpr double errors = 8;
  return whole(std::ceil(lru.distinct * margin + lru.distinct_error * errors) + 1);
}

/// The capacities that are asked for, or those at which LRU is estimated.
std::vector<std::uint32_t> capacities_of(const sample_request& request, const sampled_answer& lru) {
  if (!request.capacities.empty()) return request.capacities;
  std::vector<std::uint32_t> all;
  for (const sampled_point& each : lru.curves.front().points) all.push_back(static_cast<std::uint32_t>(each.capacity));
  return all;
}

/// The caches of the policies that are not LRU; no policies where there are none.
sweep_setup miniatures_of(const sample_request& request, const sampled_answer& lru) {
  sweep_setup setup{.policies = {},
                    .capacities = capacities_of(request, lru),
                    .salt = mixed_bits(lru.seed),
                    .blocks = lru.read.blocks};
  for (const std::string& each : request.policies) {
    if (each != lru_name) setup.policies.push_back(miniature_caches::find_policy(each));
  }
  for (std::uint32_t& each : setup.capacities) each = std::min(each, endless_capacity(lru));
  setup.part_blocks = std::max(static_cast<std::uint32_t>(lru.sampled / sample_share / miniature_caches::part_count),
                               miniature_caches::fewest_part_blocks);
  return setup;
}

/// Adds the curves of other policies than LRU.
result<void> add_miniatures(const trace_options& trace, const sample_request& request, sampled_answer& answer) {
  const auto setup = miniatures_of(request, answer);
  if (setup.policies.empty()) return {};
  for (const std::string& each : request.policies) {
    if (auto ok = check_policy_times(answer.has_times, each); !ok) return ok;
  }
  if (auto ok = miniature_sweep::check_room(setup); !ok) return ok;
  miniature_sweep sweep(setup);
  const auto read = trace.stream_again(
      [&](std::span<const std::uint64_t> chain, std::uint64_t time_ms) { sweep.add(chain, time_ms); });
  if (!read) return std::unexpected(read.error());
  sweep.finish();
  answer.cache_blocks = std::size_t{setup.part_blocks} * miniature_caches::part_count;
  const auto blocks = static_cast<double>(std::max<std::uint64_t>(1, answer.read.blocks));
  const auto capacities = capacities_of(request, answer);
  for (std::size_t policy = 0; policy < setup.policies.size(); ++policy) {
    sampled_policy& made = answer.curves.emplace_back(sampled_policy{std::string(setup.policies[policy]->name), {}});
    for (std::size_t i = 0; i < capacities.size(); ++i) {
      const auto [misses, error] = sweep.caches(i).misses_of(policy);
      made.points.push_back(point_of(answer.read, capacities[i], 1 - misses / blocks, error / blocks));
    }
  }
  return {};
}

/// Curves in the order in which they were asked for, and LRU only if it was.
void arrange(const sample_request& request, std::vector<sampled_policy>& curves) {
  const auto place = [&](const sampled_policy& curve) { return std::ranges::find(request.policies, curve.name); };
  std::erase_if(curves, [&](const sampled_policy& curve) { return place(curve) == request.policies.end(); });
  std::ranges::sort(curves, {}, place);
}

/// The reason for which a policy is not estimated.
std::string_view obstacle_of(std::string_view policy) {
  if (policy == "auto") return "chooses by samples of its own";
  if (policy == "belady") return "looks ahead";
  if (policy.ends_with("+partial")) return "is for partial blocks, which a curve leaves out";
  return "evicts blocks within chains, where a sample has gaps";
}

result<sampled_answer> measure(const trace_options& trace, std::size_t size, std::uint64_t seed,
                               const sample_request& request) {
  const bool is_read_again = std::ranges::any_of(request.policies, [](const auto& each) { return each != lru_name; });
  const auto before = is_read_again ? state_of(trace.path) : file_state{};
  if (!before) return std::unexpected(before.error());
  auto answer = measure_lru(trace, size, seed, request);
  if (!answer) return answer;
  if (auto ok = add_miniatures(trace, request, *answer); !ok) return std::unexpected(ok.error());
  const auto after = is_read_again ? state_of(trace.path) : file_state{};
  if (!after) return std::unexpected(after.error());
  if (*before != *after) return fail(error_code::malformed, fmt::format("{} changed while it was read", trace.path));
  arrange(request, answer->curves);
  if (std::ranges::all_of(answer->curves, [](const sampled_policy& each) { return each.points.empty(); })) {
    return refuse(
        fmt::format("--capacities: this sample says something from {} blocks on; a smaller one takes more "
                    "--sample-blocks than {}, or the whole trace",
                    answer->least, answer->sampled));
  }
  return answer;
}

}  // namespace

result<sampled_answer> measure_sample(const trace_options& trace, const sample_options& sample,
                                      const sample_request& request) {
  const auto size = sample_size(sample);
  if (!size) return std::unexpected(size.error());
  for (const std::string& each : request.policies) {
    if (miniature_caches::find_policy(each) == nullptr)
      return refuse(fmt::format("--sample: {} {}; of samples go {}", each, obstacle_of(each),
                                fmt::join(miniature_caches::policy_names, ", ")));
  }
  try {
    return measure(trace, *size, sample.seed.value_or(1), request);
  } catch (const std::bad_alloc&) {
    return fail(error_code::limit_exceeded, fmt::format("there is not enough memory for a sample of {} blocks", *size));
  }
}

ordered_json sampled_answer::json() const {
  ordered_json curves_json = ordered_json::array();
  for (const sampled_policy& curve : curves) {
    ordered_json points = ordered_json::array();
    for (const sampled_point& each : curve.points) {
      points.push_back({{"capacity", each.capacity},
                        {"hit_blocks", each.hit_blocks},
                        {"hit_tokens", each.hit_tokens},
                        {"hit_ratio", each.hit_ratio},
                        {"error", each.error}});
    }
    curves_json.push_back({{"policy", curve.name}, {"order", "rev"}, {"points", std::move(points)}});
  }
  ordered_json shares_json = ordered_json::array();
  for (const sampled_share& each : shares) {
    shares_json.push_back({{"share", each.share}, {"capacity", each.point.capacity}, {"error", each.point.error}});
  }
  ordered_json sample{{"blocks", sampled},
                      {"seed", seed},
                      {"rate", rate},
                      {"least_capacity", least},
                      {"distinct_error", distinct_error}};
  if (cache_blocks > 0) sample["cache_blocks"] = cache_blocks;
  return {{"format", read.format},
          {"lines", read.lines},
          {"left_out", read.left_out},
          {"requests", read.requests},
          {"instances", read.instances},
          {"tokens", read.tokens},
          {"blocks", read.blocks},
          {"distinct", static_cast<std::uint64_t>(std::llround(distinct))},
          {"block_tokens", read.block_tokens},
          {"sample", std::move(sample)},
          {"curves", std::move(curves_json)},
          {"capacity_for", std::move(shares_json)}};
}

namespace {

std::string error_text(double error) {
  return fmt::format("{:.2f} points", error * 100);
}

/// A row for each capacity that a curve has.
std::string curves_text(const std::vector<sampled_policy>& curves) {
  std::vector<std::string> heading{">CAPACITY"};
  std::map<std::uint64_t, std::vector<std::string>> cells;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    heading.push_back(">" + curves[i].name + " rev");
    heading.emplace_back(">STANDARD ERROR");
    for (const sampled_point& each : curves[i].points) {
      auto& row = cells[each.capacity];
      row.resize(2 * curves.size(), "-");
      row[2 * i] = percent(each.hit_ratio);
      row[2 * i + 1] = error_text(each.error);
    }
  }
  table rows(std::move(heading));
  for (auto& [capacity, row] : cells) {
    row.insert(row.begin(), std::to_string(capacity));
    rows.add(std::move(row));
  }
  return rows.text();
}

}  // namespace

std::string sampled_answer::text() const {
  std::string out = fmt::format("{}: {}", read.format, count_text(read.requests, "request"));
  if (read.instances > 1) out += fmt::format(" of {} instances", read.instances);
  out += fmt::format(", {} tokens; {} full blocks of {} tokens, ", read.tokens, read.blocks, read.block_tokens);
  if (rate < 1) {
    out += fmt::format("about {:.0f} of them distinct (standard error {:.0f})\n\n", distinct, distinct_error);
    out += fmt::format("From a sample of {:.3g} % of the blocks; capacities of lru below {} are not estimated\n\n",
                       rate * 100, least);
  } else {
    out += fmt::format("{:.0f} of them distinct\n\n", distinct);
    out += fmt::format(
        "The sample holds all of them, so distances alone are rounded; capacities of lru below {} are not "
        "estimated\n\n",
        least);
  }
  if (cache_blocks > 0) {
    out += fmt::format("Policies other than lru run in caches of {} blocks; capacities up to that are exact\n\n",
                       cache_blocks);
  }
  out += "PREFIX-TOKEN HITS by capacity in blocks\n" + curves_text(curves);
  if (!shares.empty()) {
    table by_share({">SHARE", ">CAPACITY", ">STANDARD ERROR"});
    for (const sampled_share& each : shares)
      by_share.add({percent(each.share), std::to_string(each.point.capacity), error_text(each.point.error)});
    out += "\nSMALLEST CAPACITY with a share of what an endless cache hits (lru rev)\n" + by_share.text();
  }
  if (read.left_out > 0) out += fmt::format("\n{} of the trace's {} lines were left out\n", read.left_out, read.lines);
  return out;
}

}  // namespace cenote::optimize
