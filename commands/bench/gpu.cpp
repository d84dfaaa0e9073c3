// `cenote bench gpu`: what docs/gpu.md promises of a GPU, beside its link and its memory. Without one the same work on
// the simulated device, which measures nothing but that it runs; and gather and scatter of the processor.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "commands/bench/gpu_stage.hpp"
#include "device/transform.hpp"

namespace cenote::bench::gpu_bench {

namespace {

constexpr double gib = static_cast<double>(GiB);
constexpr bound link_at_least{bound::kind::ratio_at_least, 0.97};
constexpr bound gather_at_least{bound::kind::ratio_at_least, 0.94};
constexpr bound scatter_at_least{bound::kind::ratio_at_least, 0.96};
constexpr bound short_runs_at_least{bound::kind::ratio_at_least, 0.90};
constexpr bound memory_at_least{bound::kind::ratio_at_least, 0.85};
constexpr bound processor_at_least{bound::kind::ratio_at_least, 0.80};
constexpr double overlap_beside_a_layer = 0.1;  // of the whole load, which may be exposed beyond the first layer
constexpr std::uint64_t block_bytes = 2 * MiB;
constexpr std::chrono::microseconds simulated_delay{2000};
constexpr double most_copies = 1000;  // of the scratch memory, to compute a layer
constexpr std::uint64_t registered_bytes = 512 * MiB;
constexpr std::uint64_t registered_piece = 8 * MiB;  // as a session registers its memory
constexpr std::chrono::microseconds registration_pause{100};

struct amounts {
  unsigned rounds;
  std::size_t shapes;     ///< checked
  std::size_t blocks;     ///< of a batch of plain blocks
  std::size_t pages;      ///< of a batch of 16-token pages
  std::uint32_t layers;   ///< at most
  std::uint64_t scratch;  ///< device memory that stands for computing
  std::size_t loaded;     ///< pages of a load beside computing
};
constexpr amounts full{20, 3000, 64, 64, 128, 512 * MiB, 512};
constexpr amounts quick{2, 60, 4, 4, 4, 2 * MiB, 4};

/// An engine's pages and how many of them are moved at once.
struct engine_case {
  std::string name;
  kv_layout kind;
  kv_shape shape;
  std::size_t batch;
};

engine_case llama(std::uint32_t tokens, const amounts& of) {
  const std::size_t batch = std::max<std::size_t>(1, of.pages * 16 / tokens);
  return {fmt::format("pages of {} tokens", tokens),
          kv_layout::kv_first,
          {std::min(32U, of.layers), 2 * batch, tokens, 8, 128, 2},
          batch};
}

engine_case latent(const amounts& of) {
  return {
      "pages of 16 tokens, MLA", kv_layout::latent, {std::min(61U, of.layers), 2 * of.pages, 16, 1, 576, 2}, of.pages};
}

/// Half of the pages, in any order.
std::vector<std::uint64_t> some_pages(const engine_case& of) {
  std::vector<std::uint64_t> pages(of.shape.pages);
  std::iota(pages.begin(), pages.end(), std::uint64_t{0});
  std::ranges::shuffle(pages, std::mt19937_64(1));
  pages.resize(of.batch);
  return pages;
}

/// KV in device memory, and as many blocks as a batch has, in registered host memory or in device memory.
class paged_pool {
 public:
  static result<std::unique_ptr<paged_pool>> make(const gpu_stage& stage, const engine_case& of,
                                                  bool blocks_on_device) {
    auto made = std::make_unique<paged_pool>();
    auto pool = stage.on().make(engine_tensors(of.kind, of.shape, nullptr, 0).bytes);
    if (!pool) return std::unexpected(pool.error());
    made->pool_ = std::move(*pool);
    auto layout =
        paged_layout::of(of.kind, of.shape, engine_tensors(of.kind, of.shape, made->pool_.mapping.get(), 0).views);
    if (!layout) return std::unexpected(layout.error());
    made->layout.emplace(std::move(*layout));
    made->pages = some_pages(of);
    made->bytes = made->layout->block_bytes() * of.batch;
    if (blocks_on_device) {
      auto blocks = stage.on().make(made->bytes);
      if (!blocks) return std::unexpected(blocks.error());
      made->device_blocks_ = std::move(*blocks);
      made->first_block = made->device_blocks_.mapping.get();
    } else {
      made->host_blocks_.emplace(stage, made->bytes);
      made->first_block = made->host_blocks_->span().data();
    }
    made->blocks = blocks_at(made->first_block, of.batch, made->layout->block_bytes());
    return made;
  }

  [[nodiscard]] move_list moves() const noexcept { return {pages, blocks}; }
  [[nodiscard]] std::byte* first_page() const noexcept { return pool_.mapping.get(); }
  [[nodiscard]] double gibibytes() const noexcept { return static_cast<double>(bytes) / gib; }

  std::optional<paged_layout> layout;
  std::vector<std::uint64_t> pages;
  std::vector<std::byte*> blocks;
  std::byte* first_block = nullptr;
  std::uint64_t bytes = 0;  ///< of the batch

 private:
  device_memory pool_;
  device_memory device_blocks_;
  std::optional<host_memory> host_blocks_;
};

result<void> measure_correctness(const gpu_stage& stage, const amounts& of, report& out) {
  const auto wrong = gpu_check::count_wrong_shapes(stage, of.shapes);
  if (!wrong) return std::unexpected(wrong.error());
  figure shapes{.bench = "",
                .name = fmt::format("of {} random shapes: moved otherwise than by the processor", of.shapes),
                .value = static_cast<double>(*wrong),
                .unit = "shapes"};
  shapes.low = shapes.high = shapes.value;
  shapes.promise = {bound::kind::value_at_most, 0};
  stage.add(out, std::move(shapes));
  if (*wrong == 0) return {};
  return fail(error_code::system,
              fmt::format("{} of {} shapes were moved wrongly; figures of that are none", *wrong, of.shapes));
}

/// Whole blocks, a copy each, beside one copy of as many bytes.
result<void> measure_link(const gpu_stage& stage, const amounts& of, report& out) {
  const std::uint64_t bytes = of.blocks * block_bytes;
  auto there = stage.on().make(bytes);
  if (!there) return std::unexpected(there.error());
  host_memory here(stage, bytes);
  if (!here.not_registered().empty()) {
    out.say_below("Host memory could not be registered (" + here.not_registered() + "): all copies were staged.\n");
  }
  const auto host_blocks = blocks_at(here.span().data(), of.blocks, block_bytes);
  auto device_blocks = blocks_at(there->mapping.get(), of.blocks, block_bytes);
  std::ranges::shuffle(device_blocks, std::mt19937_64(1));
  for (const bool up : {true, false}) {
    std::vector<copy_run> runs;
    for (std::size_t i = 0; i < of.blocks; ++i) {
      runs.push_back(up ? copy_run{device_blocks[i], host_blocks[i], block_bytes}
                        : copy_run{host_blocks[i], device_blocks[i], block_bytes});
    }
    const copy_run whole = up ? copy_run{there->mapping.get(), here.span().data(), bytes}
                              : copy_run{here.span().data(), there->mapping.get(), bytes};
    auto taken = stage.in_turn(of.rounds, {[&] { return stage.on().copy(stage.stream(), runs); },
                                           [&] {
                                             return stage.on().copy(stage.stream(), {&whole, 1});
                                           }});
    if (!taken) return std::unexpected(taken.error());
    const std::string name = fmt::format("{}, {} blocks of 2 MiB, beside one copy (the link)",
                                         up ? "host to device" : "device to host", of.blocks);
    stage.add(
        out, rate_figure("", name, (*taken)[0], (*taken)[1], static_cast<double>(bytes) / gib, "GiB/s", link_at_least));
  }
  return {};
}

/// Gather and scatter beside a copy a run and beside the link.
result<void> measure_pages(const gpu_stage& stage, const amounts& of, const engine_case& engine, report& out) {
  auto made = paged_pool::make(stage, engine, false);
  if (!made) return std::unexpected(made.error());
  const paged_pool& pool = **made;
  for (const bool to_blocks : {true, false}) {
    const auto way = to_blocks ? kernels::move_way::to_blocks : kernels::move_way::to_pages;
    const auto runs = cuda::page_runs(*pool.layout, pool.moves(), pool.layout->all_layers(), way);
    const copy_run whole = to_blocks ? copy_run{pool.first_block, pool.first_page(), pool.bytes}
                                     : copy_run{pool.first_page(), pool.first_block, pool.bytes};
    auto taken = stage.in_turn(
        of.rounds, {[&] {
                      const auto all = pool.layout->all_layers();
                      return to_blocks ? stage.on().gather(stage.stream(), *pool.layout, pool.moves(), all)
                                       : stage.on().scatter(stage.stream(), *pool.layout, pool.moves(), all);
                    },
                    [&] { return stage.on().copy(stage.stream(), runs); },
                    [&] {
                      return stage.on().copy(stage.stream(), {&whole, 1});
                    }});
    if (!taken) return std::unexpected(taken.error());
    const std::string name = fmt::format("{}, {} {}", to_blocks ? "gather" : "scatter", engine.batch, engine.name);
    stage.add(out, rate_figure("", fmt::format("{}, beside {} copies", name, runs.size()), (*taken)[0], (*taken)[1],
                               pool.gibibytes(), "GiB/s"));
    const bool has_heads = engine.kind != kv_layout::latent;
    const bound promise = !has_heads ? short_runs_at_least : to_blocks ? gather_at_least : scatter_at_least;
    stage.add(out, rate_figure("", name + ", beside one copy (the link)", (*taken)[0], (*taken)[2], pool.gibibytes(),
                               "GiB/s", promise));
  }
  return {};
}

/// Blocks in device memory; read and written bytes count.
result<void> measure_device_memory(const gpu_stage& stage, const amounts& of, report& out) {
  const engine_case engine = llama(16, of);
  auto made = paged_pool::make(stage, engine, true);
  if (!made) return std::unexpected(made.error());
  const paged_pool& pool = **made;
  const copy_run whole{pool.first_block, pool.first_page(), pool.bytes};
  auto taken = stage.in_turn(
      of.rounds,
      {[&] { return stage.on().gather(stage.stream(), *pool.layout, pool.moves(), pool.layout->all_layers()); },
       [&] {
         return stage.on().copy(stage.stream(), {&whole, 1});
       }});
  if (!taken) return std::unexpected(taken.error());
  stage.add(out, rate_figure("",
                             fmt::format("gather within the device, {} {}, beside one copy (its memory)", engine.batch,
                                         engine.name),
                             (*taken)[0], (*taken)[1], 2 * pool.gibibytes(), "GiB/s", memory_at_least));
  return {};
}

/// What an engine's computing is like: work for all multiprocessors, or for the GPU's memory.
enum class computing : std::uint8_t { multiply_adds, memory };

/// A load layer by layer with an event each, while another stream computes a layer as soon as it is there.
class overlap {
 public:
  overlap(const gpu_stage& stage, const paged_pool& pool, stream_ref compute, std::span<std::byte> scratch,
          computing kind)
      : stage_(stage), pool_(pool), compute_(std::move(compute)), scratch_(scratch) {
    if (kind == computing::memory) busy_.words = scratch.size() / sizeof(std::uint32_t);
    busy_.memory = reinterpret_cast<std::uint32_t*>(scratch.data());
    busy_.rounds = kind == computing::memory ? 1 : 1 << 14;
  }

  /// Sizes the computing of a layer: as long as its load.
  result<void> calibrate() {
    const std::uint64_t half = scratch_.size() / 2;
    copies_ = {{scratch_.data(), scratch_.data() + half, half}};
    samples loads;
    samples once;
    for (int round = 0; round < 4; ++round) {
      const auto loaded = load_alone();
      const auto computed = stage_.seconds(compute_, [&] { return compute(); });
      for (const auto* taken : {&loaded, &computed}) {
        if (!*taken) return std::unexpected(taken->error());
      }
      if (round == 0) continue;  // only warms up
      loads.add(*loaded);
      once.add(*computed);
    }
    const double layer = loads.median() / static_cast<double>(layers());
    const double times = std::min(layer / std::max(once.median(), 1e-9), most_copies);
    if (stage_.gpu() != nullptr) {
      scale_work(times);
    } else {
      copies_ = {{scratch_.data(), scratch_.data() + half, 16}};
    }
    return {};
  }

  result<double> load_alone() const {
    return stage_.seconds([&] { return load(false); });
  }
  result<double> compute_alone() const {
    return stage_.seconds(compute_, [&]() -> result<void> {
      for (std::size_t layer = 0; layer < layers(); ++layer) {
        if (auto done = compute(); !done) return done;
      }
      return {};
    });
  }
  result<double> both() const {
    return stage_.seconds(compute_, [&] { return load(true); });
  }
  [[nodiscard]] std::size_t layers() const noexcept { return pool_.layout->layers(); }

 private:
  void scale_work(double times) {
    if (busy_.words == 0) {
      busy_.rounds = std::max<std::uint64_t>(static_cast<std::uint64_t>(static_cast<double>(busy_.rounds) * times), 1);
      return;
    }
    busy_.rounds = std::max<std::uint64_t>(static_cast<std::uint64_t>(times), 1);
    if (times < 1) busy_.words = static_cast<std::uint64_t>(static_cast<double>(busy_.words) * times);
  }
  result<void> load(bool is_computing) const {
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      if (auto done = stage_.on().scatter(stage_.stream(), *pool_.layout, pool_.moves(), {layer, 1}); !done)
        return done;
      if (!is_computing) continue;
      const auto there = stage_.on().record(stage_.stream());
      if (!there) return std::unexpected(there.error());
      if (auto done = stage_.on().wait(compute_, *there); !done) return done;
      if (auto done = compute(); !done) return done;
    }
    return {};
  }
  result<void> compute() const {
    if (cuda::cuda_device* gpu = stage_.gpu(); gpu != nullptr && gpu->without_kernels().empty()) {
      return gpu->be_busy(compute_, busy_);
    }
    return stage_.on().copy(compute_, copies_);
  }

  const gpu_stage& stage_;
  const paged_pool& pool_;
  stream_ref compute_;
  std::span<std::byte> scratch_;
  kernels::busy_work busy_{};
  std::vector<copy_run> copies_;  ///< in place of work, where there are no kernels
};

result<void> measure_overlap(const gpu_stage& stage, const amounts& of, computing kind, report& out) {
  amounts larger = of;
  larger.pages = of.loaded;
  auto pool = paged_pool::make(stage, llama(16, larger), false);
  if (!pool) return std::unexpected(pool.error());
  auto scratch = stage.on().make(of.scratch);
  if (!scratch) return std::unexpected(scratch.error());
  auto compute = stage.on().make_stream();
  if (!compute) return std::unexpected(compute.error());
  overlap each(stage, **pool, *compute, scratch->span(), kind);
  if (auto sized = each.calibrate(); !sized) return sized;
  samples whole;
  samples exposed;
  for (unsigned round = 0; round <= of.rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    const auto load = each.load_alone();
    const auto computed = each.compute_alone();
    const auto together = each.both();
    for (const auto* taken : {&load, &computed, &together}) {
      if (!*taken) return std::unexpected(taken->error());
    }
    if (round == 0) continue;  // only warms up
    whole.add(*load);
    exposed.add(*together - *computed);
  }
  const bool is_memory = kind == computing::memory;
  bound promise{bound::kind::ratio_at_most, 1 / static_cast<double>(each.layers()) + overlap_beside_a_layer};
  if (is_memory) promise = {};  // both want the same memory
  const std::string name = fmt::format("load of {} pages in {} layers while {}: exposed, beside the whole load",
                                       of.loaded, each.layers(), is_memory ? "using its memory" : "computing");
  stage.add(out, time_figure("", name, exposed, whole, 1e3, "ms", promise));
  return {};
}

/// Registration as a session does it, and what a call waits that an engine makes meanwhile.
result<void> measure_registration(const gpu_stage& stage, report& out) {
  if (stage.gpu() == nullptr) return {};
  host_memory memory(stage, registered_bytes, false);
  std::atomic<bool> stops{false};
  std::atomic<double> longest{0};
  std::jthread engine([&] {
    while (!stops.load()) {
      const stopwatch watch;
      (void)stage.on().record(stage.stream());
      longest.store(std::max(longest.load(), watch.seconds()));
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  samples taken;
  samples calls;
  const stopwatch watch;
  result<void> done;
  for (std::uint64_t at = 0; at < registered_bytes && done; at += registered_piece) {
    const stopwatch call;
    done = stage.on().register_host(memory.span().subspan(at, registered_piece));
    calls.add(call.seconds());
    std::this_thread::sleep_for(registration_pause);
  }
  taken.add(watch.seconds() * static_cast<double>(GiB) / static_cast<double>(registered_bytes));
  stops.store(true);
  engine.join();
  for (std::uint64_t at = 0; at < registered_bytes; at += registered_piece) {
    stage.on().unregister_host(memory.span().subspan(at, registered_piece));
  }
  if (!done) return done;
  samples waits;
  waits.add(longest.load());
  stage.add(out,
            time_figure("", "registering memory in pieces of 8 MiB, a GiB; beside a piece", taken, calls, 1e3, "ms"));
  stage.add(out, time_figure("", "the longest call of another thread meanwhile, beside registering a piece", waits,
                             calls, 1e3, "ms", {bound::kind::value_at_most, 1}));
  return {};
}

/// Simulated work takes a time of its own here, beside which that of this machine's processors is small.
result<void> measure_overlap_with_delay(const gpu_stage& stage, const amounts& of, report& out) {
  if (sim_device* sim = stage.sim()) sim->set_delay(simulated_delay);
  auto done = measure_overlap(stage, of, computing::multiply_adds, out);
  if (sim_device* sim = stage.sim()) sim->set_delay({});
  if (!done || stage.gpu() == nullptr) return done;
  return measure_overlap(stage, of, computing::memory, out);
}

/// Gather and scatter by one thread of the processor beside memcpy.
void measure_processor(const amounts& of, const engine_case& engine, report& out) {
  memory_pieces memory(1, engine_tensors(engine.kind, engine.shape, nullptr, 0).bytes);
  const auto layout =
      paged_layout::of(engine.kind, engine.shape, engine_tensors(engine.kind, engine.shape, memory.piece(0), 0).views)
          .value();
  memory_pieces cache(engine.batch, layout.block_bytes());
  const auto blocks = blocks_at(cache.piece(0), engine.batch, layout.block_bytes());
  const std::vector<const std::byte*> from(blocks.begin(), blocks.end());
  const auto pages = some_pages(engine);
  const auto pieces = layout.pieces(layout.all_layers());
  const std::uint64_t bytes = layout.block_bytes() * engine.batch;
  for (const bool to_blocks : {true, false}) {
    samples moved;
    samples limit;
    for (unsigned round = 0; round <= of.rounds; ++round) {
      const stopwatch watch;
      if (to_blocks) {
        transform::gather(pieces, pages, blocks, 1);
      } else {
        transform::scatter(pieces, pages, from, 1);
      }
      const double taken = watch.seconds();
      const stopwatch copying;
      std::memcpy(to_blocks ? cache.piece(0) : memory.piece(0), to_blocks ? memory.piece(0) : cache.piece(0), bytes);
      if (round == 0) continue;  // only warms up
      moved.add(taken);
      limit.add(copying.seconds());
    }
    const std::string name = fmt::format("{}, {} {}, one thread, beside memcpy", to_blocks ? "gather" : "scatter",
                                         engine.batch, engine.name);
    out.add(
        rate_figure("processor", name, moved, limit, static_cast<double>(bytes) / gib, "GiB/s", processor_at_least));
  }
}

}  // namespace

result<void> run(const options& options, report& out) {
  const auto opened = gpu_stage::open(options.device);
  if (!opened) return std::unexpected(opened.error());
  const gpu_stage& stage = *opened;
  out.say(stage.about() + "\n");
  amounts of = options.quick ? quick : full;
  if (options.rounds != 0) of.rounds = options.rounds;
  if (auto done = measure_correctness(stage, of, out); !done) return done;
  if (auto done = measure_link(stage, of, out); !done) return done;
  for (const engine_case& engine : {llama(16, of), llama(128, of), latent(of)}) {
    if (auto done = measure_pages(stage, of, engine, out); !done) return done;
  }
  if (auto done = measure_device_memory(stage, of, out); !done) return done;
  if (auto done = measure_registration(stage, out); !done) return done;
  if (auto done = measure_overlap_with_delay(stage, of, out); !done) return done;
  if (auto done = gpu_ways::measure_ways(stage, std::max(of.rounds / 4, 1U), options.quick, out); !done) return done;
  for (const engine_case& engine : {llama(16, of), llama(128, of)}) measure_processor(of, engine, out);
  return {};
}

}  // namespace cenote::bench::gpu_bench
