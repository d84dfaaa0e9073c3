// `cenote bench gpu`: from which length of a run on a copy engine is faster than a kernel.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "commands/bench/gpu_stage.hpp"

namespace cenote::bench {

namespace {

constexpr std::array run_sizes{256, 4 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20};
constexpr std::array run_counts{1, 16, 256, 4096};
constexpr std::array quick_sizes{4 << 10, 1 << 20};
constexpr std::array quick_counts{1, 16};
constexpr std::uint64_t most_bytes = 128 * MiB;  // of a batch

std::string size_text(std::uint64_t bytes) {
  if (bytes < KiB) return fmt::format("{} B", bytes);
  return bytes < MiB ? fmt::format("{} KiB", bytes / KiB) : fmt::format("{} MiB", bytes / MiB);
}

/// Medians of one length and number of runs, seconds for there and back.
struct contest {
  samples kernel;
  samples copies;
};

/// Pages of one run each, apart from one another, in device memory; blocks in registered host memory.
result<contest> hold(const gpu_stage& stage, unsigned rounds, std::uint64_t run_bytes, std::size_t count) {
  auto pool = stage.on().make(2 * run_bytes * count);
  if (!pool) return std::unexpected(pool.error());
  host_memory cache(stage, std::max(4 * KiB, run_bytes * count));  // whole pages
  const auto layout =
      paged_layout::of_pieces({{pool->mapping.get(), 2 * run_bytes, run_bytes, 1, run_bytes}}, 1, count);
  if (!layout) return std::unexpected(layout.error());
  std::vector<std::uint64_t> pages(count);
  std::iota(pages.begin(), pages.end(), std::uint64_t{0});
  const auto blocks = blocks_at(cache.span().data(), count, run_bytes);
  std::vector<copy_run> out;
  std::vector<copy_run> in;
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* const page = pool->mapping.get() + 2 * run_bytes * i;
    out.push_back({blocks[i], page, run_bytes});
    in.push_back({page, blocks[i], run_bytes});
  }
  const auto by_kernel = [&]() -> result<void> {
    const move_list moves{pages, blocks};
    if (auto done = stage.on().gather(stage.stream(), *layout, moves, {0, 1}); !done) return done;
    return stage.on().scatter(stage.stream(), *layout, moves, {0, 1});
  };
  const auto by_copies = [&]() -> result<void> {
    if (auto done = stage.on().copy(stage.stream(), out); !done) return done;
    return stage.on().copy(stage.stream(), in);
  };
  auto taken = stage.in_turn(rounds, {by_kernel, by_copies});
  if (!taken) return std::unexpected(taken.error());
  return contest{std::move((*taken)[0]), std::move((*taken)[1])};
}

/// What a column of contests says: up to how many runs copies are faster.
std::uint64_t most_runs(std::span<const int> counts, const std::vector<bool>& copies_win) {
  const auto lost = std::ranges::find(copies_win, false);
  if (lost == copies_win.begin()) return 0;
  if (lost == copies_win.end()) return any_number_of_runs;
  return static_cast<std::uint64_t>(counts[static_cast<std::size_t>(lost - copies_win.begin()) - 1]);
}

std::string source_text(const std::vector<size_class>& classes) {
  std::string text = fmt::format(
      "For device/size_classes.hpp:\n\ninline constexpr std::array<size_class, {}> default_size_classes{{{{\n",
      classes.size());
  for (const size_class& each : classes) {
    const std::string most =
        each.most_runs == any_number_of_runs ? "any_number_of_runs" : std::to_string(each.most_runs);
    text += fmt::format("    {{{}, {}}},  // {}\n", each.run_bytes, most, size_text(each.run_bytes));
  }
  return text + "}};\n";
}

void say_classes(const gpu_stage& stage, const std::vector<size_class>& classes, report& out) {
  const cuda::cuda_device* gpu = stage.gpu();
  if (gpu == nullptr) return out.say_below("Size classes: not measured on a GPU.\n");
  if (!gpu->without_kernels().empty()) {
    return out.say_below("Size classes: none, for there are no kernels: " + gpu->without_kernels() + "\n");
  }
  out.say_below(source_text(classes));
}

}  // namespace

result<void> measure_size_classes(const gpu_stage& stage, unsigned rounds, bool quick, report& out) {
  const std::span<const int> sizes = quick ? std::span<const int>(quick_sizes) : std::span<const int>(run_sizes);
  const std::span<const int> counts = quick ? std::span<const int>(quick_counts) : std::span<const int>(run_counts);
  if (cuda::cuda_device* gpu = stage.gpu()) gpu->set_size_classes({});
  std::vector<size_class> classes;
  for (const int size : sizes) {
    std::vector<bool> copies_win;
    const auto run_bytes = static_cast<std::uint64_t>(size);
    for (const int count : counts) {
      const std::uint64_t bytes = run_bytes * static_cast<std::uint64_t>(count);
      if (bytes > most_bytes) continue;
      const auto held = hold(stage, rounds, run_bytes, static_cast<std::size_t>(count));
      if (!held) return std::unexpected(held.error());
      copies_win.push_back(held->copies.median() < held->kernel.median());
      stage.add(out,
                rate_figure("",
                            fmt::format("{} run{} of {}: kernel beside copies, {} faster", count, count == 1 ? "" : "s",
                                        size_text(run_bytes), copies_win.back() ? "copies" : "kernel"),
                            held->kernel, held->copies, 2.0 * static_cast<double>(bytes) / static_cast<double>(GiB),
                            "GiB/s"));
    }
    const std::uint64_t most = most_runs(counts, copies_win);
    if (most != (classes.empty() ? 0 : classes.back().most_runs)) classes.push_back({run_bytes, most});
  }
  if (cuda::cuda_device* gpu = stage.gpu()) gpu->set_size_classes(default_size_classes);
  say_classes(stage, classes, out);
  return {};
}

}  // namespace cenote::bench
