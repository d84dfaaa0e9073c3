#include "device/cuda/cuda_device.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace cenote::cuda {

result<std::unique_ptr<cuda_device>> cuda_device::open(std::string_view name, const options& how) {
  auto api = driver::load(how.library);
  if (!api) return std::unexpected(api.error());
  auto in = context::retain(std::move(*api), name);
  if (!in) return std::unexpected(in.error());
  return std::unique_ptr<cuda_device>(new cuda_device(std::move(*in), how));
}

cuda_device::cuda_device(context_ref in, const options& how) : context_(std::move(in)), engine_(context_) {
  load_kernels(how.kernels);
  costs_ = how.costs ? *how.costs : measure_costs(context_, launcher_.get());
}

void cuda_device::load_kernels(std::span<const std::byte> image) {
  if (context_->attribute(uses_host_pointers, 0) == 0) {
    without_kernels_ = "this GPU sees registered host memory under other addresses";
    return;
  }
  auto loaded = launcher::load(context_, image);
  if (loaded) {
    launcher_ = std::move(*loaded);
  } else {
    without_kernels_ = loaded.error().message();
  }
}

cuda_device::~cuda_device() {
  if (context_->in_child()) {  // the thread and what the driver made stayed with the parent: nothing of it can be ended
                               // here
    static_cast<void>(watcher_.release());
    static_cast<void>(stage_.release());
    static_cast<void>(launcher_.release());
    return;
  }
  const context::scope inside(*context_);
  if (!context_->away()) (void)context_->check(context_->api().cuCtxSynchronize(), "cuCtxSynchronize");
  for (const auto& [first, bytes] : registered_) context_->api().cuMemHostUnregister(first);
}

result<void> cuda_device::refuse_if_away() const {
  if (context_->in_child()) {
    return fail(error_code::forked, "the GPU was opened by the parent process; open it again in the child");
  }
  if (!context_->away()) return {};
  return fail(error_code::closed, "the GPU is away after " + context_->loss() + "; only a new process mends that");
}

void cuda_device::remember(const device_memory& memory) {
  const std::lock_guard guard(lock_);
  std::erase_if(own_, [](const auto& each) { return each.second.first.expired(); });
  own_[memory.mapping.get()] = {memory.mapping, memory.bytes};
}

result<device_memory> cuda_device::make(std::uint64_t bytes) {
  return map({}, bytes);
}

result<device_memory> cuda_device::map(unique_fd descriptor, std::uint64_t bytes) {
  if (auto good = refuse_if_away(); !good) return std::unexpected(good.error());
  auto made = share_memory(context_, bytes, std::move(descriptor));
  if (made) remember(*made);
  return made;
}

result<void> cuda_device::register_host(std::span<std::byte> memory) {
  if (auto good = refuse_if_away(); !good) return good;
  const context::scope inside(*context_);
  constexpr unsigned portable_and_mapped = 1 | 2;
  const cu_result code = context_->api().cuMemHostRegister_v2(memory.data(), memory.size(), portable_and_mapped);
  if (auto good = context_->check(code, "cuMemHostRegister"); !good) {
    return code == 2 ? fail(error_code::limit_exceeded, good.error().message()) : good;
  }
  const std::lock_guard guard(lock_);
  registered_[memory.data()] = memory.size();
  return {};
}

void cuda_device::unregister_host(std::span<std::byte> memory) noexcept {
  if (context_->in_child()) return;
  {
    const std::lock_guard guard(lock_);
    const auto found = registered_.find(memory.data());
    if (found == registered_.end() || found->second != memory.size()) return;
    registered_.erase(found);
  }
  const context::scope inside(*context_);
  context_->api().cuMemHostUnregister(memory.data());
}

result<stream_ref> cuda_device::make_stream() {
  if (auto good = refuse_if_away(); !good) return std::unexpected(good.error());
  return cuda_stream::create(context_);
}

result<stream_ref> cuda_device::outside(void* native) {
  if (auto good = refuse_if_away(); !good) return std::unexpected(good.error());
  return cuda_stream::outside(context_, native);
}

result<void> cuda_device::refuse_capture(cu_stream queue) const {
  int status = 0;  // not capturing
  if (auto good = context_->check(context_->api().cuStreamIsCapturing(queue, &status), "cuStreamIsCapturing"); !good) {
    return good;
  }
  if (status == 0) return {};
  return fail(error_code::invalid_argument, "the stream is being captured; a graph would copy the same blocks again");
}

/// A batch costs host memory that is not registered its stage in the driver, so such copies go one by one.
result<void> cuda_device::copy(const stream_ref& on, std::span<const copy_run> runs) {
  if (auto good = refuse_if_away(); !good) return good;
  const context::scope inside(*context_);
  cu_stream queue = handle_of(on);
  if (auto good = refuse_capture(queue); !good) return good;
  const auto one_is_registered = [this](const copy_run& run) {
    return is_registered(run.from, run.bytes) || is_registered(run.to, run.bytes);
  };
  if (runs.size() > 1 && engine_.has_batches() && !copy_engine::is_default(queue) &&
      std::ranges::all_of(runs, one_is_registered)) {
    return engine_.copy_batch(queue, runs);
  }
  for (const copy_run& run : runs) {
    if (auto good = engine_.copy_single(queue, run); !good) return good;
  }
  return {};
}

result<void> cuda_device::gather(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                 layer_range layers) {
  return move(on, {layout, moves, layers, kernels::move_way::to_blocks});
}

result<void> cuda_device::scatter(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                  layer_range layers) {
  return move(on, {layout, moves, layers, kernels::move_way::to_pages});
}

/// Without memory for a kernel or the stage it is done without them: copies once more write the same bytes.
result<void> cuda_device::move(const stream_ref& on, const page_move& job) {
  if (auto good = job.layout.check(job.moves, job.layers); !good) return good;
  if (auto good = refuse_if_away(); !good) return good;
  if (job.moves.pages.empty() || job.layers.count == 0) return {};
  const context::scope inside(*context_);
  cu_stream queue = handle_of(on);
  if (auto good = refuse_capture(queue); !good) return good;
  const block_homes found = find(job.moves.blocks, job.layout.offsets(job.layers).back());
  const auto moved = move_between(queue, job, found);
  if (moved) return moved;
  const error_code why = moved.error().code();
  if (why != error_code::limit_exceeded && why != error_code::no_space) return moved;
  return move_directly(queue, job, found);
}

result<void> cuda_device::move_between(cu_stream queue, const page_move& job, const block_homes& homes) {
  switch (homes.kind) {
    case home::gpu:
      if (launcher_) return move_by_kernel(queue, job, launcher_->all_groups());
      break;
    case home::mixed:
      if (launcher_) return move_by_kernel(queue, job, launcher_->few_groups());
      break;
    case home::host: return move_over_link(queue, job, homes);
    case home::unknown:
      // Not registered, or not known here: in few long copies, each of which the driver has to stage.
      if (forced_way_.value_or(page_way::staged) != page_way::staged) break;
      if (page_stage* const path = stage_for(job)) return move_staged(queue, job, *path, rows_of(job, homes));
      break;
  }
  return move_directly(queue, job, homes);
}

result<void> cuda_device::move_over_link(cu_stream queue, const page_move& job, const block_homes& homes) {
  page_stage* const path = stage_for(job);
  const auto rows = path != nullptr ? rows_of(job, homes) : std::vector<page_stage::row>();
  switch (forced_way_.value_or(way_of(job, rows))) {
    case page_way::staged:
      if (path == nullptr) return fail(error_code::no_space, "there is no stage on the GPU for such pages");
      return move_staged(queue, job, *path, rows);
    case page_way::kernel:
      if (launcher_) return move_by_kernel(queue, job, launcher_->few_groups());
      break;
    case page_way::direct: break;
  }
  return move_directly(queue, job, homes);
}

result<void> cuda_device::move_by_kernel(cu_stream queue, const page_move& job, std::uint32_t most_groups) {
  if (!launcher_) return fail(error_code::limit_exceeded, "there are no kernels: " + without_kernels_);
  return launcher_->move(queue, job.layout, job.moves, job.layers, job.way, most_groups);
}

/// `rows`: none where there is no stage for them.
page_way cuda_device::way_of(const page_move& job, std::span<const page_stage::row> rows) const {
  copy_work direct;
  for (const strided_piece& piece : job.layout.pieces(job.layers)) direct.runs += piece.runs * job.moves.pages.size();
  direct.calls = direct.runs;
  direct.bytes = job.row_bytes() * job.moves.pages.size();
  std::optional<copy_work> staged;
  if (!rows.empty()) staged = page_stage::work(rows, job.row_bytes());
  copy_costs costs = costs_of(job.way);
  if (!launcher_) costs.kernel_byte = 0;
  return cheapest_way(costs, direct, staged);
}

const copy_costs& cuda_device::costs_of(kernels::move_way way) const noexcept {
  return way == kernels::move_way::to_pages ? costs_.to_pages : costs_.to_blocks;
}

/// Null: there are no kernels, or there was no memory for it; that is asked for once.
page_stage* cuda_device::stage_in_use() {
  const std::lock_guard guard(lock_);
  if (!stage_ && launcher_ && !is_stage_refused_) {
    auto made = page_stage::create(context_, *launcher_);
    is_stage_refused_ = !made;
    if (made) stage_ = std::move(*made);
  }
  return stage_ && stage_->is_sound() ? stage_.get() : nullptr;
}

std::uint64_t cuda_device::stage_bytes() const noexcept {
  const std::lock_guard guard(lock_);
  return stage_ ? page_stage::slots * page_stage::slot_bytes : 0;
}

page_stage* cuda_device::stage_for(const page_move& job) {
  return page_stage::takes(job.row_bytes()) ? stage_in_use() : nullptr;
}

result<void> cuda_device::move_staged(cu_stream queue, const page_move& job, page_stage& path,
                                      std::span<const page_stage::row> rows) const {
  std::vector<std::uint64_t> pages;
  pages.reserve(rows.size());
  for (const page_stage::row& row : rows) pages.push_back(row.page);
  return path.move(queue, {job.layout, job.layers, rows, pages, job.row_bytes(), costs_of(job.way)}, job.way);
}

/// By their addresses, so that as many as possible are at one distance: blocks come in the order of keys.
std::vector<page_stage::row> cuda_device::rows_of(const page_move& job, const block_homes& homes) {
  std::vector<page_stage::row> rows;
  const std::uint64_t offset = job.layout.offsets(job.layers).front();
  for (std::size_t i = 0; i < job.moves.blocks.size(); ++i) {
    const std::byte* const memory = homes.kind == home::unknown ? nullptr : homes.memories[i];
    rows.push_back({job.moves.blocks[i] + offset, memory, job.moves.pages[i]});
  }
  std::ranges::sort(rows, std::less<>{}, &page_stage::row::bytes);
  return rows;
}

result<void> cuda_device::move_directly(cu_stream queue, const page_move& job, const block_homes& homes) {
  const auto runs = page_runs(job.layout, job.moves, job.layers, job.way);
  if (homes.kind == home::host && engine_.has_batches() && !copy_engine::is_default(queue)) {
    return engine_.copy_batch(queue, runs);
  }
  for (const copy_run& run : runs) {
    if (auto good = engine_.copy_single(queue, run); !good) return good;
  }
  return {};
}

bool cuda_device::is_registered(const std::byte* first, std::uint64_t bytes) const {
  const std::lock_guard guard(lock_);
  return registration_of(first, bytes) != nullptr;
}

/// Its first byte; null: none holds all of the memory. Called with the lock.
const std::byte* cuda_device::registration_of(const std::byte* first, std::uint64_t bytes) const {
  const auto next = registered_.upper_bound(const_cast<std::byte*>(first));
  if (next == registered_.begin()) return nullptr;
  const auto& [begin, size] = *std::prev(next);
  return first + bytes <= begin + size ? begin : nullptr;
}

cuda_device::block_homes cuda_device::find(std::span<std::byte* const> blocks, std::uint64_t bytes) {
  block_homes found;
  found.memories.reserve(blocks.size());
  std::size_t on_host = 0;
  const std::lock_guard guard(lock_);
  for (std::byte* const block : blocks) {
    if (const std::byte* const registration = registration_of(block, bytes); registration != nullptr) {
      found.memories.push_back(registration);
      ++on_host;
      continue;
    }
    const auto own = own_.upper_bound(block);
    if (own == own_.begin()) return {};
    const auto& [first, memory] = *std::prev(own);
    if (block + bytes > first + memory.second || memory.first.expired()) return {};
    found.memories.push_back(first);
  }
  found.kind = on_host == blocks.size() ? home::host : on_host == 0 ? home::gpu : home::mixed;
  return found;
}

result<void> cuda_device::be_busy(const stream_ref& on, const kernels::busy_work& work) {
  if (auto good = refuse_if_away(); !good) return good;
  if (!launcher_) return fail(error_code::unsupported, without_kernels_);
  const context::scope inside(*context_);
  return launcher_->be_busy(handle_of(on), work);
}

result<event_ref> cuda_device::record(const stream_ref& on) {
  if (auto good = refuse_if_away(); !good) return std::unexpected(good.error());
  auto made = cuda_event::create(context_);
  if (!made) return std::unexpected(made.error());
  const context::scope inside(*context_);
  const cu_result code = context_->api().cuEventRecord((*made)->handle(), handle_of(on));
  if (auto good = context_->check(code, "cuEventRecord"); !good) return std::unexpected(good.error());
  return *made;
}

result<void> cuda_device::wait(const stream_ref& on, const event_ref& event) {
  if (auto good = refuse_if_away(); !good) return good;
  const context::scope inside(*context_);
  return context_->check(
      context_->api().cuStreamWaitEvent(handle_of(on), static_cast<const cuda_event&>(*event).handle(), 0),
      "cuStreamWaitEvent");
}

event_state cuda_device::look(const event_ref& event) {
  return static_cast<cuda_event&>(*event).look();
}

void cuda_device::when(const event_ref& event, std::function<void(result<void>)> call) {
  if (context_->in_child()) return call(refuse_if_away());
  watcher_->add(std::static_pointer_cast<cuda_event>(event), std::move(call));
}

std::string cuda_device::description() const {
  char name[256] = "";
  if (context_->api().cuDeviceGetName(name, sizeof(name) - 1, context_->number()) != success) name[0] = '\0';
  return std::string(name) + ", driver for CUDA " + context_->api().version();
}

standing cuda_device::state() const noexcept {
  return context_->away() || context_->in_child() ? standing::away : standing::ready;
}

}  // namespace cenote::cuda
