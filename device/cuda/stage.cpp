#include "device/cuda/stage.hpp"

#include <algorithm>
#include <utility>

namespace cenote::cuda {

result<std::unique_ptr<stage>> stage::create(const context_ref& in, launcher& kernels) {
  auto made = std::make_unique<stage>(in, kernels);
  for (stream_ref* each : {&made->up_, &made->down_}) {
    auto stream = cuda_stream::create(in);
    if (!stream) return std::unexpected(stream.error());
    *each = std::move(*stream);
  }
  for (auto* events : {&made->filled_, &made->emptied_}) {
    for (auto& each : *events) {
      auto event = cuda_event::create(in);
      if (!event) return std::unexpected(event.error());
      each = std::move(*event);
    }
  }
  const cu_result code = in->api().cuMemAlloc_v2(&made->memory_, slots * slot_bytes);
  if (auto good = in->check(code, "cuMemAlloc"); !good) return std::unexpected(good.error());
  return made;
}

stage::~stage() {
  const context::scope inside(*context_);
  if (memory_ != nullptr) context_->api().cuMemFree_v2(memory_);
}

result<void> stage::mark(const std::shared_ptr<cuda_event>& point, cu_stream on) {
  return context_->check(context_->api().cuEventRecord(point->handle(), on), "cuEventRecord");
}

result<void> stage::await(cu_stream on, const std::shared_ptr<cuda_event>& point) {
  return context_->check(context_->api().cuStreamWaitEvent(on, point->handle(), 0), "cuStreamWaitEvent");
}

result<void> stage::run_kernel(cu_stream on, const batch& what, kernels::launch with, part of) {
  with.move.pages += of.first;
  with.move.block_count = static_cast<std::uint32_t>(of.count);
  with.move.rows = of.at - what.layout.offsets(what.layers).front();  // offsets are those in whole blocks
  return launcher_.start(on, with, launcher_.few_groups());
}

result<void> stage::run_copies(cu_stream on, const batch& what, kernels::move_way way, part of) {
  std::vector<copy_run> runs;
  for (std::size_t i = 0; i < of.count; ++i) {
    std::byte* const here = of.at + i * what.row_bytes;
    std::byte* const there = what.rows[of.first + i];
    runs.push_back(way == kernels::move_way::to_pages ? copy_run{here, there, what.row_bytes}
                                                      : copy_run{there, here, what.row_bytes});
  }
  const auto rows =
      rows_in(runs, [&](std::size_t i) { return what.memories[of.first + i] == what.memories[of.first + i - 1]; });
  return engine_.copy(on, rows, what.costs);
}

/// Copies fill the slot when the kernel that last read it has ended.
result<void> stage::to_pages(cu_stream on, const batch& what, const kernels::launch& with, part of) {
  const cu_stream up = handle_of(up_);
  if (auto good = await(up, emptied_[next_]); !good) return good;
  if (auto good = run_copies(up, what, kernels::move_way::to_pages, of); !good) return good;
  if (auto good = mark(filled_[next_], up); !good) return good;
  if (auto good = await(on, filled_[next_]); !good) return good;
  if (auto good = run_kernel(on, what, with, of); !good) return good;
  return mark(emptied_[next_], on);
}

result<void> stage::to_blocks(cu_stream on, const batch& what, const kernels::launch& with, part of) {
  const cu_stream down = handle_of(down_);
  if (auto good = await(on, emptied_[next_]); !good) return good;
  if (auto good = run_kernel(on, what, with, of); !good) return good;
  if (auto good = mark(filled_[next_], on); !good) return good;
  if (auto good = await(down, filled_[next_]); !good) return good;
  if (auto good = run_copies(down, what, kernels::move_way::to_blocks, of); !good) return good;
  return mark(emptied_[next_], down);
}

/// In parts of a slot each, so that copies of one part and the kernel of another go on side by side; few parts, since
/// beside an engine that computes each kernel waits until some multiprocessor has ended what it was given before.
result<void> stage::move_parts(cu_stream on, const batch& what, kernels::move_way way) {
  const bool reads_blocks = way == kernels::move_way::to_pages;
  const cu_stream uploads = reads_blocks ? handle_of(up_) : on;  // before the copies, not behind them
  auto tables = launcher_.prepare(uploads, what.layout, {what.pages, {}}, what.layers, way, what.row_bytes);
  if (!tables) return std::unexpected(tables.error());
  const auto most = static_cast<std::size_t>(slot_bytes / what.row_bytes);
  result<void> given;
  for (std::size_t first = 0; first < what.pages.size() && given; first += most) {
    const part of{first, std::min(most, what.pages.size() - first), memory_ + next_ * slot_bytes};
    given = reads_blocks ? to_pages(on, what, tables->what, of) : to_blocks(on, what, tables->what, of);
    if (given) next_ = (next_ + 1) % slots;
  }
  if (!given) {  // the tables are still to be uploaded, perhaps
    (void)mark(filled_[next_], uploads);
    (void)await(on, filled_[next_]);
  }
  const auto finished = launcher_.finish(on, std::move(*tables));
  return given ? finished : given;
}

/// Copies from blocks begin when the stream comes there; the stream goes on when the last block is written.
result<void> stage::move(cu_stream on, const batch& what, kernels::move_way way) {
  const std::lock_guard guard(lock_);
  if (way == kernels::move_way::to_pages) {
    if (auto good = mark(filled_[next_], on); !good) return good;
    if (auto good = await(handle_of(up_), filled_[next_]); !good) return good;
    auto given = move_parts(on, what, way);
    if (!given) is_sound_.store(false, std::memory_order_relaxed);
    return given;
  }
  const auto given = move_parts(on, what, way);
  const auto joined = await(on, emptied_[(next_ + slots - 1) % slots]);
  if (!given || !joined) is_sound_.store(false, std::memory_order_relaxed);
  return given ? joined : given;
}

}  // namespace cenote::cuda
