#include "device/cuda/cuda_device.hpp"

#include <algorithm>
#include <utility>

namespace cenote::cuda {

namespace {

bool moved_by_copies(size_classes classes, std::span<const strided_piece> pieces, std::uint64_t pages) noexcept {
  std::uint64_t shortest = ~std::uint64_t{0};
  std::uint64_t runs = 0;
  for (const strided_piece& piece : pieces) {
    shortest = std::min(shortest, piece.run_bytes);
    runs += piece.runs * pages;
  }
  return copies_pay(classes, shortest, runs);
}

}  // namespace

result<std::unique_ptr<cuda_device>> cuda_device::open(std::string_view name, const options& how) {
  auto api = driver::load(how.library);
  if (!api) return std::unexpected(api.error());
  auto in = context::retain(std::move(*api), name);
  if (!in) return std::unexpected(in.error());
  return std::unique_ptr<cuda_device>(new cuda_device(std::move(*in), how));
}

cuda_device::cuda_device(context_ref in, const options& how) : context_(std::move(in)), classes_(how.classes) {
  int same_addresses = 0;
  const cu_result code = context_->api().cuDeviceGetAttribute(&same_addresses, uses_host_pointers, context_->number());
  if (code != success || same_addresses == 0) {
    without_kernels_ = "this GPU sees registered host memory under other addresses";
    return;
  }
  auto loaded = launcher::load(context_, how.kernels);
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
  return fail(error_code::closed, "the GPU is away after an error; only a new process mends that");
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

result<void> cuda_device::copy(const stream_ref& on, std::span<const copy_run> runs) {
  if (auto good = refuse_if_away(); !good) return good;
  const context::scope inside(*context_);
  for (const copy_run& run : runs) {
    const cu_result code = context_->api().cuMemcpyAsync(run.to, run.from, run.bytes, handle_of(on));
    if (auto good = context_->check(code, "cuMemcpyAsync"); !good) return good;
  }
  return {};
}

result<void> cuda_device::gather(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                 layer_range layers) {
  return move(on, layout, moves, layers, true);
}

result<void> cuda_device::scatter(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                  layer_range layers) {
  return move(on, layout, moves, layers, false);
}

result<void> cuda_device::move(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                               layer_range layers, bool to_blocks) {
  if (auto good = layout.check(moves, layers); !good) return good;
  if (auto good = refuse_if_away(); !good) return good;
  if (moves.pages.empty() || layers.count == 0) return {};
  const bool by_kernel = launcher_ && !moved_by_copies(classes_, layout.pieces(layers), moves.pages.size());
  if (by_kernel && kernels_reach(moves.blocks, layout.offsets(layers).back())) {
    auto moved = launcher_->move(handle_of(on), layout, moves, layers, to_blocks);
    if (moved) return moved;
    const error_code why = moved.error().code();
    if (why != error_code::limit_exceeded && why != error_code::no_space) return moved;  // else it was not launched
  }
  return move_by_copies(handle_of(on), layout, moves, layers, to_blocks);
}

result<void> cuda_device::move_by_copies(cu_stream on, const paged_layout& layout, const move_list& moves,
                                         layer_range layers, bool to_blocks) {
  const context::scope inside(*context_);
  const auto pieces = layout.pieces(layers);
  const auto offsets = layout.offsets(layers);
  for (std::size_t i = 0; i < moves.pages.size(); ++i) {
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      cu_pointer in_page = pieces[p].base + moves.pages[i] * pieces[p].block_stride;
      cu_pointer in_block = moves.blocks[i] + offsets[p];
      for (std::uint64_t run = 0; run < pieces[p].runs; ++run) {
        const cu_result code = context_->api().cuMemcpyAsync(to_blocks ? in_block : in_page,
                                                             to_blocks ? in_page : in_block, pieces[p].run_bytes, on);
        if (auto good = context_->check(code, "cuMemcpyAsync"); !good) return good;
        in_page += pieces[p].run_stride;
        in_block += pieces[p].run_bytes;
      }
    }
  }
  return {};
}

bool cuda_device::kernels_reach(std::span<std::byte* const> blocks, std::uint64_t bytes) {
  const std::lock_guard guard(lock_);
  return std::ranges::all_of(blocks, [&](std::byte* block) {
    const auto host = registered_.upper_bound(block);
    if (host != registered_.begin() && block + bytes <= std::prev(host)->first + std::prev(host)->second) return true;
    const auto own = own_.upper_bound(block);
    if (own == own_.begin()) return false;
    const auto& [first, memory] = *std::prev(own);
    return block + bytes <= first + memory.second && !memory.first.expired();
  });
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
