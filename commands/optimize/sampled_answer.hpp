// `cenote optimize curve --sample`: the curves of policies from samples, in memory of a fixed size.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "commands/optimize/trace_options.hpp"
#include "commands/replay/streamed_trace.hpp"
#include "core/error.hpp"

namespace cenote::optimize {

struct sample_options {
  bool is_wanted = false;
  std::string blocks;                 ///< of the sample at most, "64k"; empty: the usual number
  std::optional<std::uint32_t> seed;  ///< of the lot that draws them
};

/// Blocks of the sample, within the bounds of sampled_curve. Refuses one that is not, and options of a sample without
/// one (invalid_argument).
[[nodiscard]] result<std::size_t> sample_size(const sample_options& options);

struct sampled_point {
  std::uint64_t capacity = 0;
  std::uint64_t hit_blocks = 0;
  std::uint64_t hit_tokens = 0;
  double hit_ratio = 0;
  double error = 0;  ///< standard error of hit_ratio
};

struct sampled_policy {
  std::string name;
  std::vector<sampled_point> points;  ///< those that are estimated
};

struct sampled_share {
  double share = 0;
  sampled_point point;
};

struct sampled_answer {
  replay::streamed_trace read;
  bool has_times = false;   ///< time passes in it
  std::size_t sampled = 0;  ///< blocks of the sample at most
  std::uint64_t seed = 0;
  double rate = 0;               ///< of the sample
  std::uint64_t least = 0;       ///< the smallest capacity that is estimated
  double distinct = 0;           ///< different blocks
  double distinct_error = 0;     ///< standard error of that
  std::size_t cache_blocks = 0;  ///< of the caches of policies other than lru, for each capacity; 0: there are none
  std::vector<sampled_policy> curves;
  std::vector<sampled_share> shares;  ///< of lru, those whose capacity is estimated

  [[nodiscard]] nlohmann::ordered_json json() const;
  [[nodiscard]] std::string text() const;
};

/// The curves that are asked for.
struct sample_request {
  std::vector<std::string> policies;
  std::vector<std::uint32_t> capacities;  ///< none: eight that double up to all different blocks
  std::vector<double> shares;
};

/// Reads the trace once for `lru`, by a sampled_curve, and once more for all other policies, by miniature_caches.
/// Capacities that are not estimated are left out. Refused are a list of nothing else and a policy that looks ahead
/// (invalid_argument), other policies than lru where the trace comes through a pipe (unsupported) and where their
/// caches have no room (limit_exceeded). Errors as stream_trace_file().
[[nodiscard]] result<sampled_answer> measure_sample(const trace_options& trace, const sample_options& sample,
                                                    const sample_request& request);

}  // namespace cenote::optimize
