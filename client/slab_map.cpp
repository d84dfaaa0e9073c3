#include "client/slab_map.hpp"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

namespace cenote::client {

namespace {

constexpr std::uint64_t populate_step = std::uint64_t{256} << 10;  // tens of microseconds: then whoever waits runs

}  // namespace

slab_map::slab_map() : chunks_(memory::block_ref::max_slabs / chunk_slabs) {}

slab_map::~slab_map() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  if (populator_.joinable()) populator_.join();
  for (auto& part : chunks_) delete part.load(std::memory_order_relaxed);
}

result<void> slab_map::add(const slab_shape& shape, unique_fd fd, std::uint64_t bytes) {
  if (shape.count == 0 || shape.stride == 0 || shape.count > memory::block_ref::max_blocks_per_slab ||
      bytes < shape.count * shape.stride + memory::page_bytes) {
    return fail(error_code::layout_mismatch, "slab " + std::to_string(shape.index) + " is too small for its blocks");
  }
  auto memory = memory::segment::map(std::move(fd), bytes, memory::access::read_write);
  if (!memory) return std::unexpected(memory.error());
  memory->keep_from_children();
  const auto& trailer = *reinterpret_cast<const memory::segment_header*>(memory->data() + bytes - memory::page_bytes);
  if (auto ok = memory::check_header(trailer, memory::segment_kind::slab, bytes); !ok) return ok;
  adopt(shape, std::move(*memory));
  if (const mapped_slab* slab = find(shape.index)) populate_later(*slab);
  return {};
}

void slab_map::adopt(const slab_shape& shape, memory::segment memory) {
  auto slab = std::make_unique<mapped_slab>();
  slab->memory = std::move(memory);
  slab->index = shape.index;
  slab->count = shape.count;
  slab->stride = shape.stride;
  slab->group = shape.group;
  place(std::move(slab));
}

void slab_map::place(std::unique_ptr<mapped_slab> slab) {
  const std::lock_guard lock(mutex_);
  auto& holder = chunks_[slab->index / chunk_slabs];
  if (holder.load(std::memory_order_relaxed) == nullptr) {
    holder.store(std::make_unique<chunk>().release(), std::memory_order_release);  // freed in the destructor
  }
  auto& entry = (*holder.load(std::memory_order_relaxed))[slab->index % chunk_slabs];
  if (entry.load(std::memory_order_relaxed) != nullptr) return;  // another thread was faster
  entry.store(slab.get(), std::memory_order_release);
  slabs_.push_back(std::move(slab));
}

void slab_map::drop_if(const std::function<bool(std::uint32_t)>& gone) {
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < slabs_.size();) {
    const mapped_slab* slab = slabs_[i].get();
    if (!gone(slab->index)) {
      ++i;
      continue;
    }
    std::erase_if(queue_, [&](const populating& each) { return each.slab == slab; });
    changed_.wait(lock, [&] { return populating_ != slab; });
    (*chunks_[slab->index / chunk_slabs].load(std::memory_order_relaxed))[slab->index % chunk_slabs].store(
        nullptr, std::memory_order_release);
    std::erase_if(slabs_, [&](const auto& each) { return each.get() == slab; });
    i = 0;  // the wait let others change the list
  }
}

std::size_t slab_map::size() const {
  const std::lock_guard lock(mutex_);
  return slabs_.size();
}

void slab_map::abandon() noexcept {
  // The thread and the mappings stayed in the parent; the memory of the lists is leaked on purpose.
  static_cast<void>(std::make_unique<std::thread>(std::move(populator_)).release());
  for (auto& slab : slabs_) static_cast<void>(slab.release());  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
}

void slab_map::populate_later(const mapped_slab& slab) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(queue_, &slab, &populating::slab) != queue_.end()) return;
  queue_.push_back({&slab, 0});
  run_in_background();
}

void slab_map::do_later(std::function<void()> errand) {
  const std::lock_guard lock(mutex_);
  errand_ = std::move(errand);
  run_in_background();
}

/// Called with the lock.
void slab_map::run_in_background() {
  try {
    if (!populator_.joinable() && !stop_) populator_ = std::thread([this] { populate_loop(); });
  } catch (const std::system_error&) {
    // No thread to be had: pages come with their first use, and who needs a slab asks for it.
  }
  changed_.notify_all();
}

void slab_map::populate_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !queue_.empty() || errand_ || stop_; });
    if (stop_) return;
    if (errand_) {
      const auto errand = std::exchange(errand_, nullptr);
      lock.unlock();
      try {
        errand();
      } catch (const std::exception&) {
        // It was ahead of need: who needs it does it.
      }
      lock.lock();
    } else {
      populate_some(lock);
    }
  }
}

/// Read faults: where pages are there already they map 16 at a time, for writes too, in a third of the time.
void slab_map::populate_some(std::unique_lock<std::mutex>& lock) {
  const auto [slab, offset] = queue_.front();
  populating_ = slab;
  lock.unlock();
  const std::uint64_t bytes = std::min(populate_step, slab->memory.size() - offset);
  const bool went = slab->memory.populate(offset, bytes, memory::access::read_only);
  std::this_thread::yield();
  lock.lock();
  populating_ = nullptr;
  changed_.notify_all();
  if (queue_.empty() || queue_.front().slab != slab) return;  // it is to be dropped
  queue_.front().offset += bytes;
  const bool done = queue_.front().offset >= slab->memory.size();
  if (went && done) slab->all_mapped.store(true, std::memory_order_relaxed);
  if (!went || done) queue_.pop_front();
}

}  // namespace cenote::client
