// `cenote bench gpu`: whether the device moves pages as the processor does, before anything is timed.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "commands/bench/gpu_stage.hpp"
#include "device/transform.hpp"

namespace cenote::bench::gpu_check {

namespace {

constexpr std::uint64_t arena_bytes = 1 * MiB;  // more than the largest shape, and its blocks, need

enum class block_memory : std::uint8_t { registered_host, device, staged_host };
constexpr int block_memories = 3;
constexpr int ways = 3;  // of page_way; one more turn takes the cheapest

std::uint64_t any(std::mt19937_64& random, std::uint64_t least, std::uint64_t most) {
  return std::uniform_int_distribution(least, most)(random);
}

/// An engine's memory and blocks on the host, which the processor moves, and as much on the device.
class check {
 public:
  explicit check(const gpu_stage& stage)
      : stage_(stage),
        registered_(stage, arena_bytes),
        staged_(stage, arena_bytes, false),
        engine_(stage, arena_bytes, false),
        wanted_(arena_bytes),
        seen_(arena_bytes) {}

  result<void> allocate() {
    for (device_memory* each : {&device_engine_, &device_blocks_}) {
      auto made = stage_.on().make(arena_bytes);
      if (!made) return std::unexpected(made.error());
      *each = std::move(*made);
    }
    return {};
  }

  /// Whether all bytes are as the processor's transform makes them.
  result<bool> agrees(std::mt19937_64& random, int number) {
    draw(random, number);
    take_way(number / kv_layout_count % (ways + 1));
    const auto to_blocks = try_direction(random, true);
    if (!to_blocks || !*to_blocks) return to_blocks;
    return try_direction(random, false);
  }

 private:
  /// Any shape of the layout whose turn it is, a batch of its pages, and some of its layers.
  void draw(std::mt19937_64& random, int number) {
    kind_ = static_cast<kv_layout>(number % kv_layout_count);
    const bool no_heads = to_string(kind_).starts_with("latent");
    shape_ = {
        .layers = static_cast<std::uint32_t>(any(random, 1, 4)),
        .pages = any(random, 1, 5),
        .page_tokens = static_cast<std::uint32_t>(any(random, 1, 16)),
        .heads = no_heads ? 1 : static_cast<std::uint32_t>(any(random, 1, 4)),
        .head_items = static_cast<std::uint32_t>(any(random, 0, 1) == 0 ? any(random, 1, 9) : 16 * any(random, 1, 4)),
        .item_bytes = 1U << any(random, 0, 2)};
    gap_ = any(random, 0, 1) == 0 ? 0 : any(random, 1, 16);
    where_ = static_cast<block_memory>(any(random, 0, block_memories - 1));
    pages_.resize(shape_.pages);
    std::iota(pages_.begin(), pages_.end(), std::uint64_t{0});
    std::ranges::shuffle(pages_, random);
    pages_.resize(any(random, 1, shape_.pages));
    layers_.first = any(random, 0, shape_.layers - 1);
    layers_.count = any(random, 1, shape_.layers - layers_.first);
    skew_ = any(random, 0, 1) == 0 ? 0 : any(random, 1, 16);
  }

  void take_way(int number) {
    cuda::cuda_device* gpu = stage_.gpu();
    if (gpu == nullptr) return;
    const bool is_free = number == ways || cuda::kernel_image().empty();  // without kernels there is one way
    gpu->set_way(is_free ? std::nullopt : std::optional(static_cast<page_way>(number)));
  }

  [[nodiscard]] std::span<std::byte> blocks_memory() {
    switch (where_) {
      case block_memory::registered_host: return registered_.span();
      case block_memory::device: return device_blocks_.span().first(arena_bytes);
      default: return staged_.span();
    }
  }

  result<void> copy(std::byte* to, const std::byte* from) {
    const copy_run run{to, from, arena_bytes};
    const auto taken = stage_.seconds([&] { return stage_.on().copy(stage_.stream(), {&run, 1}); });
    return taken ? result<void>() : std::unexpected(taken.error());
  }

  static void fill(std::span<std::byte> memory, std::mt19937_64& random) {
    std::uint64_t word = random();
    for (std::size_t at = 0; at < memory.size(); at += sizeof(word)) {
      word = word * 6364136223846793005U + 1442695040888963407U;
      std::memcpy(memory.data() + at, &word, sizeof(word));
    }
  }

  result<bool> try_direction(std::mt19937_64& random, bool to_blocks) {
    const std::span<std::byte> memory = blocks_memory();
    fill(engine_.span(), random);
    fill(wanted_, random);
    if (auto done = copy(device_engine_.mapping.get(), engine_.span().data()); !done)
      return std::unexpected(done.error());
    if (auto done = copy(memory.data(), wanted_.data()); !done) return std::unexpected(done.error());
    auto moved = move(memory.data(), to_blocks);
    if (!moved) return std::unexpected(moved.error());
    if (auto done = copy(seen_.data(), memory.data()); !done) return std::unexpected(done.error());
    if (seen_ != wanted_) return false;
    if (auto done = copy(seen_.data(), device_engine_.mapping.get()); !done) return std::unexpected(done.error());
    return std::memcmp(seen_.data(), engine_.span().data(), arena_bytes) == 0;
  }

  /// By the device, and by the processor within engine_ and wanted_.
  result<void> move(std::byte* memory, bool to_blocks) {
    const auto on_device = layout_at(device_engine_.mapping.get());
    const auto on_host = layout_at(engine_.span().data());
    if (!on_device || !on_host) return std::unexpected((on_device ? on_host : on_device).error());
    const std::uint64_t bytes = on_host->block_bytes();
    const auto blocks = blocks_at(memory + skew_, pages_.size(), bytes);
    const auto wanted = blocks_at(wanted_.data() + skew_, pages_.size(), bytes);
    const std::uint64_t offset = on_host->offsets(layers_).front();
    if (to_blocks) {
      transform::gather(on_host->pieces(layers_), pages_, wanted, 1, offset);
    } else {
      const std::vector<const std::byte*> from(wanted.begin(), wanted.end());
      transform::scatter(on_host->pieces(layers_), pages_, from, 1, offset);
    }
    const auto taken = stage_.seconds([&] {
      const move_list moves{pages_, blocks};
      return to_blocks ? stage_.on().gather(stage_.stream(), *on_device, moves, layers_)
                       : stage_.on().scatter(stage_.stream(), *on_device, moves, layers_);
    });
    return taken ? result<void>() : std::unexpected(taken.error());
  }

  [[nodiscard]] result<paged_layout> layout_at(std::byte* base) const {
    return paged_layout::of(kind_, shape_, engine_tensors(kind_, shape_, base, gap_).views);
  }

  const gpu_stage& stage_;
  host_memory registered_;
  host_memory staged_;
  host_memory engine_;
  std::vector<std::byte> wanted_;
  std::vector<std::byte> seen_;
  device_memory device_engine_;
  device_memory device_blocks_;

  kv_layout kind_ = kv_layout::kv_first;
  kv_shape shape_;
  std::uint64_t gap_ = 0;
  block_memory where_ = block_memory::registered_host;
  std::vector<std::uint64_t> pages_;
  layer_range layers_;
  std::uint64_t skew_ = 0;
};

}  // namespace

result<std::size_t> count_wrong_shapes(const gpu_stage& stage, std::size_t shapes) {
  check of(stage);
  if (auto made = of.allocate(); !made) return std::unexpected(made.error());
  std::mt19937_64 random(1);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < shapes; ++i) {
    if (auto go_on = check_interrupted(); !go_on) return std::unexpected(go_on.error());
    const auto same = of.agrees(random, static_cast<int>(i));
    if (!same) return std::unexpected(same.error());
    wrong += *same ? 0 : 1;
  }
  if (cuda::cuda_device* gpu = stage.gpu()) gpu->set_way({});
  return wrong;
}

}  // namespace cenote::bench::gpu_check
