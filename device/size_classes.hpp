// Which pages the copy engines of a GPU move and which a kernel, by the length and the number of their runs.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>

namespace cenote {

/// Runs of at least `run_bytes`: one copy each where a batch has at most `most_runs` of them, else a kernel.
struct size_class {
  std::uint64_t run_bytes = 0;
  std::uint64_t most_runs = 0;
};
/// Ordered by run_bytes; the last one that a run is long enough for counts, and without one it is a kernel.
using size_classes = std::span<const size_class>;

inline constexpr std::uint64_t any_number_of_runs = std::numeric_limits<std::uint64_t>::max();

/// Not measured on a GPU yet. A copy has a price of its own, which a kernel pays once a batch: a run must be long
/// enough to hide it, and then its copy leaves the GPU's processors to the engine. `cenote bench gpu` prints what
/// belongs here.
inline constexpr std::array<size_class, 1> default_size_classes{{
    {std::uint64_t{1} << 20, any_number_of_runs},
}};

/// Whether a batch of `runs` runs, the shortest of `run_bytes`, is moved by copies.
[[nodiscard]] constexpr bool copies_pay(size_classes classes, std::uint64_t run_bytes, std::uint64_t runs) noexcept {
  std::uint64_t most = 0;
  for (const size_class& each : classes) {
    if (run_bytes >= each.run_bytes) most = each.most_runs;
  }
  return runs <= most;
}

}  // namespace cenote
