// `cenote optimize curve --sample`: the curve of LRU from a sample, in memory of a fixed size.
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

struct sampled_share {
  double share = 0;
  sampled_point point;
};

struct sampled_answer {
  replay::streamed_trace read;
  std::size_t sampled = 0;  ///< blocks of the sample at most
  std::uint64_t seed = 0;
  double rate = 0;            ///< of the sample
  std::uint64_t least = 0;    ///< the smallest capacity that is estimated
  double distinct = 0;        ///< different blocks
  double distinct_error = 0;  ///< standard error of that
  std::vector<sampled_point> points;
  std::vector<sampled_share> shares;  ///< those whose capacity is estimated

  [[nodiscard]] nlohmann::ordered_json json() const;
  [[nodiscard]] std::string text() const;
};

/// Reads the trace once. `capacities`: none are eight that double up to all different blocks. Those that are not
/// estimated are left out; refused is a list of nothing else (invalid_argument). Errors as stream_trace_file().
[[nodiscard]] result<sampled_answer> measure_sample(const trace_options& trace, const sample_options& sample,
                                                    std::vector<std::uint32_t> capacities,
                                                    const std::vector<double>& shares);

}  // namespace cenote::optimize
