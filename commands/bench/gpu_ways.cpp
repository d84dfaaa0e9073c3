// `cenote bench gpu`: the ways to move pages by the length of their runs, what each costs an engine that computes
// beside it, and which one the device takes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <random>

#include "commands/bench/gpu_stage.hpp"

namespace cenote::bench::gpu_ways {

namespace {

constexpr std::array<std::uint64_t, 6> run_sizes{1 * KiB, 4 * KiB, 8 * KiB, 16 * KiB, 32 * KiB, 128 * KiB};
constexpr std::array<std::uint64_t, 2> quick_sizes{4 * KiB, 32 * KiB};
constexpr std::uint64_t layers = 32;
constexpr std::uint64_t full_bytes = 256 * MiB;  // of a batch
constexpr std::uint64_t quick_bytes = 4 * MiB;
constexpr std::array ways{page_way::staged, page_way::direct, page_way::kernel};

std::string_view name_of(page_way way) {
  switch (way) {
    case page_way::staged: return "stage";
    case page_way::direct: return "copies";
    default: return "kernel";
  }
}

/// Keys and values of layers as long as the runs, each page's blocks in registered host memory.
class run_pool {
 public:
  static result<std::unique_ptr<run_pool>> make(const gpu_stage& stage, std::uint64_t run, std::uint64_t bytes) {
    auto made = std::make_unique<run_pool>();
    made->count_ = std::max<std::uint64_t>(bytes / (2 * layers * run), 1);
    const std::uint64_t pages = 2 * made->count_;
    auto pool = stage.on().make(2 * layers * pages * run);
    if (!pool) return std::unexpected(pool.error());
    made->pool_ = std::move(*pool);
    std::vector<strided_piece> pieces;
    for (std::uint64_t i = 0; i < 2 * layers; ++i)
      pieces.push_back({made->pool_.mapping.get() + i * pages * run, run, run, 1, run});
    auto layout = paged_layout::of_pieces(std::move(pieces), layers, pages);
    if (!layout) return std::unexpected(layout.error());
    made->layout_.emplace(std::move(*layout));
    made->cache_.emplace(stage, std::max(made->bytes(), 4 * KiB));
    made->blocks_ = blocks_at(made->cache_->span().data(), made->count_, made->layout_->block_bytes());
    made->pages_.resize(pages);
    std::iota(made->pages_.begin(), made->pages_.end(), std::uint64_t{0});
    std::ranges::shuffle(made->pages_, std::mt19937_64(1));
    made->pages_.resize(made->count_);
    return made;
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return count_ * layout_->block_bytes(); }
  result<void> move_layer(const gpu_stage& stage, bool to_pages, std::size_t layer) const {
    const move_list moves{pages_, blocks_};
    return to_pages ? stage.on().scatter(stage.stream(), *layout_, moves, {layer, 1})
                    : stage.on().gather(stage.stream(), *layout_, moves, {layer, 1});
  }

 private:
  std::uint64_t count_ = 0;
  device_memory pool_;
  std::optional<paged_layout> layout_;
  std::optional<host_memory> cache_;
  std::vector<std::byte*> blocks_;
  std::vector<std::uint64_t> pages_;
};

/// Layer by layer, alone or beside work that takes as long.
class layered_move {
 public:
  layered_move(const gpu_stage& stage, const run_pool& pool, bool to_pages, stream_ref compute)
      : stage_(stage), pool_(pool), to_pages_(to_pages), compute_(std::move(compute)) {}

  result<double> move_time() const {
    return stage_.seconds([&]() -> result<void> {
      for (std::size_t layer = 0; layer < layers; ++layer) {
        if (auto done = pool_.move_layer(stage_, to_pages_, layer); !done) return done;
      }
      return {};
    });
  }
  result<double> computing(const kernels::busy_work& work) const {
    return stage_.seconds(compute_, [&]() -> result<void> {
      for (std::size_t layer = 0; layer < layers; ++layer) {
        if (auto done = stage_.gpu()->be_busy(compute_, work); !done) return done;
      }
      return {};
    });
  }
  /// A load's layer is computed when it is there; a store's layer leaves when it is computed.
  result<double> overlapped(const kernels::busy_work& work) const {
    const auto begun = [&]() -> result<void> {
      for (std::size_t layer = 0; layer < layers; ++layer) {
        if (!to_pages_) {
          if (auto done = stage_.gpu()->be_busy(compute_, work); !done) return done;
          if (auto done = follow(stage_.stream(), compute_); !done) return done;
        }
        if (auto done = pool_.move_layer(stage_, to_pages_, layer); !done) return done;
        if (!to_pages_) continue;
        if (auto done = follow(compute_, stage_.stream()); !done) return done;
        if (auto done = stage_.gpu()->be_busy(compute_, work); !done) return done;
      }
      return to_pages_ ? result<void>{} : follow(compute_, stage_.stream());
    };
    return stage_.seconds(compute_, begun);
  }

 private:
  result<void> follow(const stream_ref& second, const stream_ref& first) const {
    const auto point = stage_.on().record(first);
    if (!point) return std::unexpected(point.error());
    return stage_.on().wait(second, *point);
  }

  const gpu_stage& stage_;
  const run_pool& pool_;
  bool to_pages_;
  stream_ref compute_;
};

struct way_figures {
  samples time;
  samples exposed;  ///< of the move's own time
};

result<way_figures> measure_way(const layered_move& move, unsigned rounds, const kernels::busy_work& work) {
  way_figures found;
  for (unsigned round = 0; round <= rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return std::unexpected(go_on.error());
    const auto alone = move.move_time();
    const auto computing = move.computing(work);
    const auto both = move.overlapped(work);
    for (const auto* taken : {&alone, &computing, &both}) {
      if (!*taken) return std::unexpected(taken->error());
    }
    if (round == 0) continue;  // only warms up
    found.time.add(*alone);
    found.exposed.add((*both - *computing) / *alone);
  }
  return found;
}

/// Rounds of multiply-adds that take so many seconds.
result<kernels::busy_work> work_of(const gpu_stage& stage, const stream_ref& compute, double seconds) {
  kernels::busy_work work{nullptr, 0, 1 << 14};
  samples taken;
  for (int turn = 0; turn < 4; ++turn) {
    const auto once = stage.seconds(compute, [&] { return stage.gpu()->be_busy(compute, work); });
    if (!once) return std::unexpected(once.error());
    if (turn != 0) taken.add(*once);
  }
  const double times = seconds / std::max(taken.median(), 1e-9);
  work.rounds = std::max<std::uint64_t>(static_cast<std::uint64_t>(static_cast<double>(work.rounds) * times), 1);
  return work;
}

std::string line_of(const gpu_stage& stage) {
  const auto text = [](std::string_view direction, const copy_costs& costs) {
    return fmt::format(
        "{}: {:.1f} GiB/s, {:.0f} ns a run, {:.0f} ns a call, {:.0f} ns a run of a batch, a kernel {:.1f} GiB/s",
        direction, 1e9 / costs.byte / static_cast<double>(GiB), costs.row, costs.call, costs.batched_row,
        costs.kernel_byte > 0 ? 1e9 / costs.kernel_byte / static_cast<double>(GiB) : 0);
  };
  const cuda::both_costs& costs = stage.gpu()->costs();
  return "Measured when the device was opened. " + text("To pages", costs.to_pages) + ". " +
         text("To blocks", costs.to_blocks) + ".\n\n";
}

result<void> measure_run(const gpu_stage& stage, unsigned rounds, std::uint64_t run, std::uint64_t bytes, bool to_pages,
                         report& out, std::string& table) {
  auto pool = run_pool::make(stage, run, bytes);
  auto compute = stage.on().make_stream();
  if (!pool) return std::unexpected(pool.error());
  if (!compute) return std::unexpected(compute.error());
  const layered_move move(stage, **pool, to_pages, *compute);
  stage.gpu()->set_way({});
  const auto once = move.move_time();
  if (!once) return std::unexpected(once.error());
  const auto warm = move.move_time();
  if (!warm) return std::unexpected(warm.error());
  const auto work = work_of(stage, *compute, *warm / layers);
  if (!work) return std::unexpected(work.error());
  const auto chosen = measure_way(move, rounds, *work);
  if (!chosen) return std::unexpected(chosen.error());
  const double gibibytes = static_cast<double>((*pool)->bytes()) / static_cast<double>(GiB);
  std::string line = fmt::format("| {} KiB | {} | {:.1f}, {:.2f} |", run / KiB, to_pages ? "scatter" : "gather",
                                 gibibytes / chosen->time.median(), chosen->exposed.median());
  std::optional<samples> best;
  for (const page_way way : ways) {
    stage.gpu()->set_way(way);
    const auto found = measure_way(move, rounds, *work);
    if (!found) return std::unexpected(found.error());
    line += fmt::format(" {:.1f}, {:.2f} |", gibibytes / found->time.median(), found->exposed.median());
    if (!best || found->time.median() < best->median()) best = found->time;
  }
  stage.gpu()->set_way({});
  table += line + "\n";
  stage.add(out, rate_figure("",
                             fmt::format("{} by layers, runs of {} KiB: the chosen way beside the fastest",
                                         to_pages ? "scatter" : "gather", run / KiB),
                             chosen->time, *best, gibibytes, "GiB/s"));
  return {};
}

}  // namespace

result<void> measure_ways(const gpu_stage& stage, unsigned rounds, bool quick, report& out) {
  if (stage.gpu() == nullptr) {
    out.say_below("Ways to move pages: not measured on a GPU.\n");
    return {};
  }
  if (!stage.gpu()->without_kernels().empty()) {
    out.say_below("Ways to move pages: copies alone, for there are no kernels: " + stage.gpu()->without_kernels() +
                  "\n");
    return {};
  }
  std::string table = line_of(stage) + "| run | | chosen |";
  for (const page_way way : ways) table += fmt::format(" {} |", name_of(way));
  table += "\n| --- | --- | --- | --- | --- | --- |\n";
  const auto sizes = quick ? std::span<const std::uint64_t>(quick_sizes) : std::span<const std::uint64_t>(run_sizes);
  for (const std::uint64_t run : sizes) {
    for (const bool to_pages : {true, false}) {
      auto done = measure_run(stage, rounds, run, quick ? quick_bytes : full_bytes, to_pages, out, table);
      if (!done) return done;
    }
  }
  out.say_below(
      fmt::format("{}\nGiB/s of {} layers, a call each; the share of that time that an engine loses which computes "
                  "as long beside it\n(multiply-adds on all multiprocessors).\n",
                  table, layers));
  return {};
}

}  // namespace cenote::bench::gpu_ways
