#include "device/cuda/page_stage.hpp"

#include <algorithm>
#include <utility>

namespace cenote::cuda {

namespace {

/// Between rows and the stage, where they follow each other from `memory` on.
std::vector<row_run> copies_of(std::span<const page_stage::row> rows, std::byte* memory, std::uint64_t row_bytes,
                               kernels::move_way way) {
  std::vector<copy_run> runs;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::byte* const here = memory + i * row_bytes;
    runs.push_back(way == kernels::move_way::to_pages ? copy_run{here, rows[i].bytes, row_bytes}
                                                      : copy_run{rows[i].bytes, here, row_bytes});
  }
  return rows_in(runs,
                 [&](std::size_t i) { return rows[i].memory != nullptr && rows[i].memory == rows[i - 1].memory; });
}

}  // namespace

/// Only distances count, so that any address stands for the stage's.
copy_work page_stage::work(std::span<const row> rows, std::uint64_t row_bytes) {
  return work_of(copies_of(rows, rows.front().bytes, row_bytes, kernels::move_way::to_pages));
}

result<std::unique_ptr<page_stage>> page_stage::create(const context_ref& owner, launcher& kernels) {
  auto made = std::make_unique<page_stage>(owner, kernels);
  for (stream_ref* each : {&made->uploads_, &made->downloads_}) {
    auto stream = cuda_stream::create(owner);
    if (!stream) return std::unexpected(stream.error());
    *each = std::move(*stream);
  }
  for (auto* events : {&made->filled_, &made->emptied_}) {
    for (auto& each : *events) {
      auto event = cuda_event::create(owner);
      if (!event) return std::unexpected(event.error());
      each = std::move(*event);
    }
  }
  const cu_result code = owner->api().cuMemAlloc_v2(&made->memory_, slots * slot_bytes);
  if (auto good = owner->check(code, "cuMemAlloc"); !good) return std::unexpected(good.error());
  return made;
}

page_stage::~page_stage() {
  const context::scope inside(*context_);
  if (memory_ != nullptr) context_->api().cuMemFree_v2(memory_);
}

result<void> page_stage::mark(const std::shared_ptr<cuda_event>& point, cu_stream queue) {
  return context_->check(context_->api().cuEventRecord(point->handle(), queue), "cuEventRecord");
}

result<void> page_stage::await(cu_stream queue, const std::shared_ptr<cuda_event>& point) {
  return context_->check(context_->api().cuStreamWaitEvent(queue, point->handle(), 0), "cuStreamWaitEvent");
}

result<void> page_stage::run_kernel(cu_stream queue, const passage& job, kernels::launch task, share part) {
  task.move.pages += part.first;
  task.move.block_count = static_cast<std::uint32_t>(part.count);
  task.move.rows = part.memory - job.layout.offsets(job.layers).front();  // offsets are those in whole blocks
  return launcher_.start(queue, task, launcher_.few_groups());
}

result<void> page_stage::run_copies(cu_stream queue, const passage& job, kernels::move_way way, share part) {
  const auto rows = copies_of(job.rows.subspan(part.first, part.count), part.memory, job.row_bytes, way);
  if (job.rows[part.first].memory == nullptr) return engine_.copy_each(queue, rows);
  return engine_.copy(queue, rows, job.costs);
}

/// Copies fill the slot when the kernel that last read it has ended.
result<void> page_stage::to_pages(cu_stream queue, const passage& job, const kernels::launch& task, share part) {
  cu_stream up = handle_of(uploads_);
  if (auto good = await(up, emptied_[next_]); !good) return good;
  if (auto good = run_copies(up, job, kernels::move_way::to_pages, part); !good) return good;
  if (auto good = mark(filled_[next_], up); !good) return good;
  if (auto good = await(queue, filled_[next_]); !good) return good;
  if (auto good = run_kernel(queue, job, task, part); !good) return good;
  return mark(emptied_[next_], queue);
}

result<void> page_stage::to_blocks(cu_stream queue, const passage& job, const kernels::launch& task, share part) {
  cu_stream down = handle_of(downloads_);
  if (auto good = await(queue, emptied_[next_]); !good) return good;
  if (auto good = run_kernel(queue, job, task, part); !good) return good;
  if (auto good = mark(filled_[next_], queue); !good) return good;
  if (auto good = await(down, filled_[next_]); !good) return good;
  if (auto good = run_copies(down, job, kernels::move_way::to_blocks, part); !good) return good;
  return mark(emptied_[next_], down);
}

/// In parts of a slot each, so that copies of one part and the kernel of another go on side by side; few parts, since
/// beside an engine that computes each kernel waits until some multiprocessor has ended job it was given before.
result<void> page_stage::move_parts(cu_stream queue, const passage& job, kernels::move_way way) {
  const bool reads_blocks = way == kernels::move_way::to_pages;
  cu_stream uploads = reads_blocks ? handle_of(uploads_) : queue;  // before the copies, not behind them
  auto tables = launcher_.prepare(uploads, job.layout, {job.pages, {}}, job.layers, way, job.row_bytes);
  if (!tables) return std::unexpected(tables.error());
  const auto most = static_cast<std::size_t>(slot_bytes / job.row_bytes);
  result<void> moved;
  for (std::size_t first = 0; first < job.pages.size() && moved; first += most) {
    const share part{first, std::min(most, job.pages.size() - first), memory_ + next_ * slot_bytes};
    moved = reads_blocks ? to_pages(queue, job, tables->launch, part) : to_blocks(queue, job, tables->launch, part);
    if (moved) next_ = (next_ + 1) % slots;
  }
  if (!moved) {  // the tables are still to be uploaded, perhaps
    (void)mark(filled_[next_], uploads);
    (void)await(queue, filled_[next_]);
  }
  const auto finished = launcher_.finish(queue, std::move(*tables));
  return moved ? finished : moved;
}

/// Copies from blocks begin when the stream comes there; the stream goes on when the last block is written.
result<void> page_stage::move(cu_stream queue, const passage& job, kernels::move_way way) {
  const std::lock_guard guard(lock_);
  if (way == kernels::move_way::to_pages) {
    if (auto good = mark(filled_[next_], queue); !good) return good;
    if (auto good = await(handle_of(uploads_), filled_[next_]); !good) return good;
    auto moved = move_parts(queue, job, way);
    if (!moved) is_sound_.store(false, std::memory_order_relaxed);
    return moved;
  }
  const auto moved = move_parts(queue, job, way);
  const auto joined = await(queue, emptied_[(next_ + slots - 1) % slots]);
  if (!moved || !joined) is_sound_.store(false, std::memory_order_relaxed);
  return moved ? joined : moved;
}

}  // namespace cenote::cuda
