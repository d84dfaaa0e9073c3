#include "device/cuda/cost_probe.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "device/cuda/copy_engine.hpp"

namespace cenote::cuda {

namespace {

using nanoseconds = std::chrono::duration<double, std::nano>;

// Host memory is as far apart as an engine's blocks are: rows that lie close to each other cost less.
constexpr std::uint64_t probe_bytes = std::uint64_t{32} << 20;
constexpr std::uint64_t long_bytes = std::uint64_t{8} << 20;
constexpr std::uint64_t pitch = std::uint64_t{512} << 10;
constexpr std::uint64_t rows_of_call = probe_bytes / pitch;
constexpr std::uint64_t calls_of_rows = 16;
constexpr std::uint64_t short_row = 4 << 10;  // bytes, so that the price of a row shows
constexpr std::uint64_t named_runs = 512;     // one by one
constexpr int batches = 4;                    // one behind the other, as a model's layers come
constexpr int probe_turns = 5;
constexpr std::chrono::seconds longest_turn{1};
constexpr std::chrono::milliseconds longest_warming{40};  // of a link that slept

/// Memory on both sides, and a stream.
class probe {
 public:
  probe(const context_ref& owner, launcher* kernels) : context_(owner), launcher_(kernels), engine_(owner) {}
  probe(const probe&) = delete;
  probe& operator=(const probe&) = delete;
  ~probe() {
    if (device_ != nullptr) context_->api().cuMemFree_v2(device_);
    if (host_ != nullptr) context_->api().cuMemFreeHost(host_);
  }

  bool allocate() {
    void* host = nullptr;
    if (context_->api().cuMemHostAlloc(&host, probe_bytes, 0) != success) return false;
    host_ = static_cast<std::byte*>(host);
    if (context_->api().cuMemAlloc_v2(&device_, probe_bytes) != success) return false;
    auto stream = cuda_stream::create(context_);
    auto event = cuda_event::create(context_);
    if (!stream || !event) return false;
    stream_ = std::move(*stream);
    end_ = std::move(*event);
    return true;
  }

  /// Copies until the link is as fast as it becomes.
  void warm() {
    const auto begun = std::chrono::steady_clock::now();
    for (std::optional<timing> before; std::chrono::steady_clock::now() - begun < longest_warming;) {
      const auto now = turn([&] { return copy_long(); });
      if (!now || (before && now->total > 0.97 * before->total && now->total < 1.03 * before->total)) return;
      before = now;
    }
  }

  copy_costs measure(kernels::move_way way) {
    target_ = way == kernels::move_way::to_pages ? device_ : host_;
    source_ = way == kernels::move_way::to_pages ? host_ : device_;
    warm();
    std::optional<timing> long_copy;
    std::optional<timing> rows;
    std::optional<timing> pairs;
    std::optional<timing> batch;
    std::optional<timing> kernel;
    for (int i = 0; i < probe_turns; ++i) {  // in turn, so that whatever disturbs one disturbs all
      keep_least(long_copy, turn([&] { return copy_long(); }));
      keep_least(rows, turn([&] { return copy_in_rows(); }));
      keep_least(pairs, turn([&] { return copy_in_pairs(); }));
      if (engine_.has_batches()) keep_least(batch, turn([&] { return copy_in_batches(); }));
      if (launcher_ != nullptr) keep_least(kernel, turn([&] { return copy_by_kernel(way); }));
    }
    copy_costs costs = usual_copy_costs;
    if (long_copy) costs.byte = long_copy->total / static_cast<double>(long_bytes);
    constexpr double all_rows = rows_of_call * calls_of_rows;
    if (rows) costs.row = std::max(rows->total / all_rows - static_cast<double>(short_row) * costs.byte, 0.0);
    constexpr double all_pairs = named_runs / 2.0;
    if (pairs) {
      costs.call = pairs->call / all_pairs;
      const double rows_alone = 2 * (static_cast<double>(short_row) * costs.byte + costs.row);
      costs.call_start = std::max(pairs->total / all_pairs - rows_alone, 0.0);
    }
    if (batch || !engine_.has_batches())
      costs.batched_row = batch ? batch->call / (batches * static_cast<double>(named_runs)) : 0;
    if (kernel || launcher_ == nullptr)
      costs.kernel_byte = kernel ? kernel->total / static_cast<double>(long_bytes) : 0;
    return costs;
  }

 private:
  [[nodiscard]] cu_stream queue() const noexcept { return handle_of(stream_); }

  /// Nanoseconds of the call, and until the GPU has ended it.
  struct timing {
    double call;
    double total;
  };
  static void keep_least(std::optional<timing>& least, const std::optional<timing>& now) {
    if (!now) return;
    least = least ? timing{std::min(least->call, now->call), std::min(least->total, now->total)} : *now;
  }
  std::optional<timing> turn(const std::function<result<void>()>& work) {
    const auto begun = std::chrono::steady_clock::now();
    if (!work()) return {};
    const double named = nanoseconds(std::chrono::steady_clock::now() - begun).count();
    if (context_->api().cuEventRecord(end_->handle(), queue()) != success) return {};
    while (context_->api().cuEventQuery(end_->handle()) != success) {
      if (context_->away() || std::chrono::steady_clock::now() - begun > longest_turn) return {};
      std::this_thread::yield();
    }
    return timing{named, nanoseconds(std::chrono::steady_clock::now() - begun).count()};
  }

  result<void> copy_long() { return engine_.copy_single(queue(), {target_, source_, long_bytes}); }
  result<void> copy_in_rows() {
    for (std::uint64_t i = 0; i < calls_of_rows; ++i) {
      const std::uint64_t at = i * short_row;
      auto copied = engine_.copy_rows(queue(), {target_ + at, source_ + at, short_row, rows_of_call, pitch, pitch});
      if (!copied) return copied;
    }
    return {};
  }
  result<void> copy_in_pairs() {
    for (std::uint64_t i = 0; i < named_runs / 2; ++i) {
      const std::uint64_t at = 4 * i * short_row;
      auto copied =
          engine_.copy_rows(queue(), {target_ + at, source_ + at, short_row, 2, 2 * short_row, 2 * short_row});
      if (!copied) return copied;
    }
    return {};
  }
  /// Rows of a stage, far apart in host memory.
  std::vector<copy_run> single_runs() const {
    std::vector<copy_run> made;
    for (std::uint64_t i = 0; i < named_runs; ++i) {
      const std::uint64_t far = i % rows_of_call * pitch + i / rows_of_call * short_row;
      const std::uint64_t near = i * short_row;
      const bool is_load = target_ == device_;
      made.push_back({target_ + (is_load ? near : far), source_ + (is_load ? far : near), short_row});
    }
    return made;
  }
  result<void> copy_in_batches() {
    const auto runs = single_runs();
    for (int i = 0; i < batches; ++i) {
      if (auto copied = engine_.copy_batch(queue(), runs); !copied) return copied;
    }
    return {};
  }
  /// One block that is one page, in pieces of an engine's size.
  result<void> copy_by_kernel(kernels::move_way way) {
    constexpr std::uint64_t piece = 32 << 10;
    const auto layout = paged_layout::of_pieces({{device_, piece, piece, 1, piece}}, 1, long_bytes / piece);
    if (!layout) return std::unexpected(layout.error());
    std::vector<std::uint64_t> pages;
    std::vector<std::byte*> blocks;
    for (std::uint64_t i = 0; i < long_bytes / piece; ++i) {
      pages.push_back(i);
      blocks.push_back(host_ + i * piece);
    }
    return launcher_->move(queue(), *layout, {pages, blocks}, {0, 1}, way, launcher_->few_groups());
  }

  context_ref context_;
  launcher* launcher_;
  copy_engine engine_;
  std::byte* host_ = nullptr;
  cu_pointer device_ = nullptr;
  stream_ref stream_;
  std::shared_ptr<cuda_event> end_;
  std::byte* target_ = nullptr;
  std::byte* source_ = nullptr;
};

}  // namespace

both_costs measure_costs(const context_ref& owner, launcher* kernels) {
  const context::scope inside(*owner);
  probe here(owner, kernels);
  if (!here.allocate()) return {};
  both_costs found;
  found.to_pages = here.measure(kernels::move_way::to_pages);
  found.to_blocks = here.measure(kernels::move_way::to_blocks);
  return found;
}

}  // namespace cenote::cuda
