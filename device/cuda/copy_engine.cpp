#include "device/cuda/copy_engine.hpp"

#include <algorithm>
#include <cstdint>

namespace cenote::cuda {

namespace {

// A batch is begun when all of it was named: long copies begin earlier in several, short ones want few calls.
constexpr std::uint64_t batch_bytes = std::uint64_t{32} << 20;
constexpr std::size_t least_batch = 16;
constexpr std::size_t largest_batch = 512;
constexpr std::uint64_t longest_pitch = 0x7fffffff;  // of a copy of rows

/// The distance of two addresses, if the second comes after the end of the first.
std::uint64_t pitch_between(const std::byte* first, const std::byte* second, std::uint64_t bytes) noexcept {
  const auto distance = reinterpret_cast<std::uintptr_t>(second) - reinterpret_cast<std::uintptr_t>(first);
  return distance >= bytes && distance <= longest_pitch ? distance : 0;  // one that comes before is farther
}

}  // namespace

bool row_run::extend(const copy_run& next) noexcept {
  if (next.bytes != bytes) return false;
  const std::uint64_t last = rows - 1;
  const std::uint64_t target_next = pitch_between(target + last * target_pitch, next.to, bytes);
  const std::uint64_t source_next = pitch_between(source + last * source_pitch, next.from, bytes);
  if (target_next == 0 || source_next == 0) return false;
  if (rows > 1 && (target_next != target_pitch || source_next != source_pitch)) return false;
  target_pitch = target_next;
  source_pitch = source_next;
  ++rows;
  return true;
}

copy_work work_of(std::span<const row_run> rows) noexcept {
  copy_work work;
  work.calls = rows.size();
  for (const row_run& each : rows) {
    work.runs += each.rows;
    work.bytes += each.rows * each.bytes;
  }
  return work;
}

std::vector<copy_run> page_runs(const paged_layout& layout, const move_list& moves, layer_range layers,
                                kernels::move_way way) {
  std::vector<copy_run> runs;
  const auto pieces = layout.pieces(layers);
  const auto offsets = layout.offsets(layers);
  for (std::size_t i = 0; i < moves.pages.size(); ++i) {
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      std::byte* in_page = pieces[p].base + moves.pages[i] * pieces[p].block_stride;
      std::byte* in_block = moves.blocks[i] + offsets[p];
      for (std::uint64_t run = 0; run < pieces[p].runs; ++run) {
        runs.push_back(way == kernels::move_way::to_blocks ? copy_run{in_block, in_page, pieces[p].run_bytes}
                                                           : copy_run{in_page, in_block, pieces[p].run_bytes});
        in_page += pieces[p].run_stride;
        in_block += pieces[p].run_bytes;
      }
    }
  }
  return runs;
}

bool copy_engine::has_batches() const noexcept {
  return context_->api().cuMemcpyBatchAsync_v2 != nullptr || context_->api().cuMemcpyBatchAsync != nullptr;
}

bool copy_engine::is_default(cu_stream queue) noexcept {
  constexpr std::uintptr_t last_of_the_driver = 2;  // the handles of its own default streams
  return reinterpret_cast<std::uintptr_t>(queue) <= last_of_the_driver;
}

result<void> copy_engine::copy_single(cu_stream queue, const copy_run& run) const {
  return context_->check(context_->api().cuMemcpyAsync(run.to, run.from, run.bytes, queue), "cuMemcpyAsync");
}

result<void> copy_engine::copy_rows(cu_stream queue, const row_run& rows) const {
  if (rows.rows == 1) return copy_single(queue, rows.run(0));
  cu_rows what;
  what.source.address = const_cast<std::byte*>(rows.source);
  what.source.pitch = rows.source_pitch;
  what.target.address = rows.target;
  what.target.pitch = rows.target_pitch;
  what.width = rows.bytes;
  what.height = rows.rows;
  const auto copied = context_->check(context_->api().cuMemcpy2DAsync_v2(&what, queue), "cuMemcpy2DAsync");
  if (copied || context_->away()) return copied;
  for (std::uint64_t row = 0; row < rows.rows; ++row) {
    if (auto one = copy_single(queue, rows.run(row)); !one) return one;
  }
  return {};
}

cu_result copy_engine::begin_batch(cu_stream queue, std::span<const copy_run> runs) const {
  const driver& api = context_->api();
  std::vector<cu_pointer> targets;
  std::vector<cu_pointer> sources;
  std::vector<std::size_t> sizes;
  for (const copy_run& each : runs) {
    targets.push_back(each.to);
    sources.push_back(const_cast<std::byte*>(each.from));
    sizes.push_back(each.bytes);
  }
  cu_batch_attributes how;
  std::size_t first = 0;  // these attributes are of all copies from that one on
  if (api.cuMemcpyBatchAsync_v2 != nullptr) {
    return api.cuMemcpyBatchAsync_v2(targets.data(), sources.data(), sizes.data(), runs.size(), &how, &first, 1, queue);
  }
  std::size_t failed = 0;
  return api.cuMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(), runs.size(), &how, &first, 1, &failed,
                                queue);
}

/// After a refusal some of the batch may be under way: each copy again writes the same bytes, in the stream's order.
result<void> copy_engine::copy_batch(cu_stream queue, std::span<const copy_run> runs) const {
  while (!runs.empty()) {
    const std::size_t wanted = static_cast<std::size_t>(batch_bytes / std::max<std::uint64_t>(runs.front().bytes, 1));
    const auto some = runs.first(std::min(runs.size(), std::clamp(wanted, least_batch, largest_batch)));
    runs = runs.subspan(some.size());
    const auto copied = context_->check(begin_batch(queue, some), "cuMemcpyBatchAsync");
    if (copied) continue;
    if (context_->away()) return copied;
    for (const copy_run& each : some) {
      if (auto one = copy_single(queue, each); !one) return one;
    }
  }
  return {};
}

result<void> copy_engine::copy_batches(cu_stream queue, std::span<const row_run> rows) const {
  std::vector<copy_run> runs;
  for (const row_run& each : rows) {
    for (std::uint64_t row = 0; row < each.rows; ++row) runs.push_back(each.run(row));
  }
  return copy_batch(queue, runs);
}

result<void> copy_engine::copy(cu_stream queue, std::span<const row_run> rows, const copy_costs& costs) const {
  if (has_batches() && !is_default(queue) && batches_pay(costs, work_of(rows))) return copy_batches(queue, rows);
  return copy_each(queue, rows);
}

result<void> copy_engine::copy_each(cu_stream queue, std::span<const row_run> rows) const {
  for (const row_run& each : rows) {
    if (auto copied = copy_rows(queue, each); !copied) return copied;
  }
  return {};
}

}  // namespace cenote::cuda
