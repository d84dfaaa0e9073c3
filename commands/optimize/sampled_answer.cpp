#include "commands/optimize/sampled_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "commands/common.hpp"
#include "commands/optimize/capacities.hpp"
#include "commands/optimize/refusal.hpp"
#include "commands/replay/options.hpp"
#include "commands/table.hpp"
#include "core/count_text.hpp"
#include "core/key_sample.hpp"
#include "core/text.hpp"
#include "simulation/optimize/sampled_curve.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using simulation::sampled_curve;

constexpr std::size_t usual_blocks = std::size_t{1} << 18;

std::uint32_t whole(double blocks) {
  constexpr double most = 2147483648.0;  // of a number of blocks
  return static_cast<std::uint32_t>(std::clamp(std::round(blocks), 0.0, most));
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
    return point_of(capacity, 1 - found->miss_ratio, found->error);
  }

  [[nodiscard]] double endless_hits() const noexcept {
    return std::max(0.0, static_cast<double>(read_.blocks) - sample_.endless().misses);
  }

  /// The smallest capacity with so much of what an endless cache hits, if that is estimated.
  [[nodiscard]] std::optional<sampled_point> with_share(double share) const {
    const double wanted = share * endless_hits();
    auto low = static_cast<std::uint32_t>(std::min<std::uint64_t>(least(), ~std::uint32_t{0}));
    std::uint32_t high = std::max(low, whole(sample_.endless().misses));
    const auto has = [&](std::uint32_t capacity) {
      const auto found = sample_.estimate(capacity);
      return found && (1 - found->miss_ratio) * static_cast<double>(read_.blocks) >= wanted - 0.5;
    };
    if (low > 0 && has(low)) return std::nullopt;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (has(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return point(low);
  }

 private:
  [[nodiscard]] sampled_point point_of(std::uint32_t capacity, double ratio, double error) const {
    const auto blocks = static_cast<double>(read_.blocks);
    const auto tokens = static_cast<double>(std::max<std::uint64_t>(1, read_.tokens));
    const auto hits = static_cast<std::uint64_t>(std::llround(std::clamp(ratio, 0.0, 1.0) * blocks));
    const std::uint64_t hit_tokens = hits * read_.block_tokens;
    return {.capacity = capacity,
            .hit_blocks = hits,
            .hit_tokens = hit_tokens,
            .hit_ratio = static_cast<double>(hit_tokens) / tokens,
            .error = error * blocks * static_cast<double>(read_.block_tokens) / tokens};
  }

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

result<sampled_answer> measure(const trace_options& trace, const sample_options& sample, std::size_t size,
                               std::vector<std::uint32_t> capacities, const std::vector<double>& shares) {
  sampled_answer answer{.read = {}, .sampled = size, .seed = sample.seed.value_or(1), .points = {}, .shares = {}};
  const std::uint64_t salt = mixed_bits(answer.seed);
  sampled_curve curve({.salt = salt, .sampled = size});
  std::vector<std::uint64_t> drawn;
  // Keys that count up would spread more evenly over the places of a sample than a lot has it.
  auto read = trace.stream([&](std::span<const std::uint64_t> chain) {
    drawn.resize(chain.size());
    std::ranges::transform(chain, drawn.begin(), [&](std::uint64_t key) { return mixed_bits(key + salt); });
    curve.add(drawn);
  });
  if (!read) return std::unexpected(read.error());
  answer.read = std::move(*read);
  const hit_curve hits(curve, answer.read);
  answer.rate = curve.rate();
  answer.least = hits.least();
  answer.distinct = curve.endless().misses;
  answer.distinct_error = curve.endless().error;
  // An estimate of the distinct blocks may be below the longest request, below which no point is given.
  if (capacities.empty())
    capacities = doubled_points(whole(std::max(answer.distinct, static_cast<double>(hits.least()))));
  for (const std::uint32_t each : capacities) {
    if (const auto point = hits.point(each)) answer.points.push_back(*point);
  }
  if (answer.points.empty()) {
    return refuse(
        fmt::format("--capacities: this sample says something from {} blocks on; a smaller one takes more "
                    "--sample-blocks than {}, or the whole trace",
                    answer.least, answer.sampled));
  }
  for (const double share : shares) {
    if (const auto point = hits.with_share(share)) answer.shares.push_back({share, *point});
  }
  return answer;
}

}  // namespace

result<sampled_answer> measure_sample(const trace_options& trace, const sample_options& sample,
                                      std::vector<std::uint32_t> capacities, const std::vector<double>& shares) {
  const auto size = sample_size(sample);
  if (!size) return std::unexpected(size.error());
  try {
    return measure(trace, sample, *size, std::move(capacities), shares);
  } catch (const std::bad_alloc&) {
    return fail(error_code::limit_exceeded, fmt::format("there is not enough memory for a sample of {} blocks", *size));
  }
}

ordered_json sampled_answer::json() const {
  ordered_json points_json = ordered_json::array();
  for (const sampled_point& each : points) {
    points_json.push_back({{"capacity", each.capacity},
                           {"hit_blocks", each.hit_blocks},
                           {"hit_tokens", each.hit_tokens},
                           {"hit_ratio", each.hit_ratio},
                           {"error", each.error}});
  }
  ordered_json shares_json = ordered_json::array();
  for (const sampled_share& each : shares) {
    shares_json.push_back({{"share", each.share}, {"capacity", each.point.capacity}, {"error", each.point.error}});
  }
  return {{"format", read.format},
          {"lines", read.lines},
          {"left_out", read.left_out},
          {"requests", read.requests},
          {"instances", read.instances},
          {"tokens", read.tokens},
          {"blocks", read.blocks},
          {"distinct", static_cast<std::uint64_t>(std::llround(distinct))},
          {"block_tokens", read.block_tokens},
          {"sample",
           {{"blocks", sampled},
            {"seed", seed},
            {"rate", rate},
            {"least_capacity", least},
            {"distinct_error", distinct_error}}},
          {"curves", {{{"policy", "lru"}, {"order", "rev"}, {"points", std::move(points_json)}}}},
          {"capacity_for", std::move(shares_json)}};
}

std::string sampled_answer::text() const {
  std::string out = fmt::format("{}: {}", read.format, count_text(read.requests, "request"));
  if (read.instances > 1) out += fmt::format(" of {} instances", read.instances);
  out += fmt::format(", {} tokens; {} full blocks of {} tokens, ", read.tokens, read.blocks, read.block_tokens);
  if (rate < 1) {
    out += fmt::format("about {:.0f} of them distinct (standard error {:.0f})\n\n", distinct, distinct_error);
    out += fmt::format("From a sample of {:.3g} % of the blocks; capacities below {} are not estimated\n\n", rate * 100,
                       least);
  } else {
    out += fmt::format("{:.0f} of them distinct\n\n", distinct);
    out += fmt::format(
        "The sample holds all of them, so distances alone are rounded; capacities below {} are not estimated\n\n",
        least);
  }
  const auto error_text = [](double error) { return fmt::format("{:.2f} points", error * 100); };
  table rows({">CAPACITY", ">lru rev", ">STANDARD ERROR"});
  for (const sampled_point& each : points)
    rows.add({std::to_string(each.capacity), percent(each.hit_ratio), error_text(each.error)});
  out += "PREFIX-TOKEN HITS by capacity in blocks\n" + rows.text();
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
