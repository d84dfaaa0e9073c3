#include "client/slab_map.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

namespace cenote::client {

namespace {

constexpr std::uint64_t populate_step = std::uint64_t{256} << 10;  // tens of microseconds: then whoever waits runs

constexpr std::chrono::seconds retired_slabs_stay{1};  // their pages, while a device has them registered

std::unique_ptr<mapped_slab> described(const slab_shape& shape, memory::slab_mapping memory) {
  auto slab = std::make_unique<mapped_slab>();
  slab->memory = std::move(memory);
  slab->index = shape.index;
  slab->count = shape.count;
  slab->stride = shape.stride;
  slab->group = shape.group;
  return slab;
}

}  // namespace

slab_map::slab_map() : chunks_(memory::block_ref::max_slabs / chunk_slabs) {}

slab_map::~slab_map() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (const auto& slab : slabs_) unregister(*slab);
  for (auto& part : chunks_) delete part.load(std::memory_order_relaxed);
}

void slab_map::lie_on(std::shared_ptr<device> home, std::function<void()> drop_retired) {
  const std::lock_guard lock(mutex_);
  home_ = std::move(home);
  drop_retired_ = std::move(drop_retired);
}

/// There is no trailer: the processor could not read it.
result<void> slab_map::add_of_device(const slab_shape& shape, unique_fd fd, std::uint64_t bytes) {
  auto mapped = home_->map(std::move(fd), bytes);
  if (!mapped) return std::unexpected(mapped.error().in("slab " + std::to_string(shape.index)));
  auto slab = described(shape, memory::slab_mapping(std::move(mapped->mapping), mapped->bytes, {}));
  slab->all_mapped.store(true, std::memory_order_relaxed);
  place(std::move(slab), mapped->bytes);
  return {};
}

result<void> slab_map::add(const slab_shape& shape, unique_fd fd, std::uint64_t bytes) {
  const std::uint64_t trailer_bytes = home_ ? 0 : memory::page_bytes;
  if (shape.count == 0 || shape.stride == 0 || shape.count > memory::block_ref::max_blocks_per_slab ||
      bytes < shape.count * shape.stride + trailer_bytes) {
    return fail(error_code::layout_mismatch, "slab " + std::to_string(shape.index) + " is too small for its blocks");
  }
  if (home_) return add_of_device(shape, std::move(fd), bytes);
  auto memory = memory::segment::map(std::move(fd), bytes, memory::access::read_write);
  if (!memory) return std::unexpected(memory.error());
  memory->keep_from_children();
  const auto& trailer = *reinterpret_cast<const memory::segment_header*>(memory->data() + bytes - memory::page_bytes);
  if (auto ok = memory::check_header(trailer, memory::segment_kind::slab, bytes); !ok) return ok;
  place(described(shape, std::move(*memory)), 0);
  return {};
}

void slab_map::adopt(const slab_shape& shape, memory::segment memory) {
  const std::uint64_t bytes = memory.size();
  place(described(shape, std::move(memory)), bytes);
}

/// Shows the slab, and prepares it later from `offset` on.
void slab_map::place(std::unique_ptr<mapped_slab> slab, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  auto& holder = chunks_[slab->index / chunk_slabs];
  if (holder.load(std::memory_order_relaxed) == nullptr) {
    holder.store(std::make_unique<chunk>().release(), std::memory_order_release);  // freed in the destructor
  }
  auto& entry = (*holder.load(std::memory_order_relaxed))[slab->index % chunk_slabs];
  if (entry.load(std::memory_order_relaxed) != nullptr) return;  // another thread was faster
  entry.store(slab.get(), std::memory_order_release);
  const mapped_slab* const placed = slabs_.emplace_back(std::move(slab)).get();
  if (offset == placed->memory.size() && !device_ && !home_) return;
  if (!home_) queue_.push_back({placed, offset});
  run_in_background();
}

void slab_map::drop_if(const std::function<bool(std::uint32_t)>& gone) {
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < slabs_.size();) {
    const mapped_slab* slab = slabs_[i].get();
    if (!gone(slab->index)) {
      ++i;
      continue;
    }
    std::erase_if(queue_, [&](const preparation& each) { return each.slab == slab; });
    if (preparing_ == slab) {  // another thread may drop it, too, while this one waits
      changed_.wait(lock);
      i = 0;
      continue;
    }
    (*chunks_[slab->index / chunk_slabs].load(std::memory_order_relaxed))[slab->index % chunk_slabs].store(
        nullptr, std::memory_order_release);
    unregister(*slab);
    std::erase_if(slabs_, [&](const auto& each) { return each.get() == slab; });
  }
}

void slab_map::register_with(std::shared_ptr<device> user, std::function<void()> drop_retired) {
  const std::lock_guard lock(mutex_);
  if (device_) return;
  device_ = std::move(user);
  drop_retired_ = std::move(drop_retired);
  for (const auto& slab : slabs_) {
    const bool waits = std::ranges::find(queue_, slab.get(), &preparation::slab) != queue_.end();
    if (!waits) queue_.push_back({slab.get(), slab->memory.size()});
  }
  run_in_background();
}

slab_map::registration_counts slab_map::registered() const {
  const std::lock_guard lock(mutex_);
  return {registered_.size(), refused_};
}

/// Called with the lock, or by the destructor.
void slab_map::unregister(const mapped_slab& slab) {
  if (std::erase(registered_, &slab) == 0) return;
  device_->unregister_host({slab.memory.data(), slab.memory.size()});
}

std::size_t slab_map::size() const {
  const std::lock_guard lock(mutex_);
  return slabs_.size();
}

void slab_map::abandon() noexcept {
  // The thread and the mappings stayed in the parent; the memory of the lists is leaked on purpose.
  static_cast<void>(std::make_unique<std::thread>(std::move(thread_)).release());
  for (auto& slab : slabs_) static_cast<void>(slab.release());  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
}

void slab_map::do_later(std::function<void()> errand) {
  const std::lock_guard lock(mutex_);
  errand_ = std::move(errand);
  run_in_background();
}

/// Called with the lock.
void slab_map::run_in_background() {
  try {
    if (!thread_.joinable() && !stop_) thread_ = std::thread([this] { prepare_loop(); });
  } catch (const std::system_error&) {
    // No thread to be had: pages come with their first use, and who needs a slab asks for it.
  }
  changed_.notify_all();
}

void slab_map::prepare_loop() {
  using clock = std::chrono::steady_clock;
  auto next_look = clock::now();
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto wanted = [&] { return !queue_.empty() || errand_ || stop_; };
    if (!drop_retired_) changed_.wait(lock, [&] { return wanted() || drop_retired_; });
    if (drop_retired_) changed_.wait_until(lock, next_look, wanted);
    if (stop_) return;
    const bool looks = drop_retired_ && clock::now() >= next_look;
    if (looks) next_look = clock::now() + retired_slabs_stay;
    if (errand_ || looks) {
      const auto errand = looks ? drop_retired_ : std::exchange(errand_, nullptr);
      lock.unlock();
      try {
        if (errand) errand();
      } catch (const std::exception&) {
        // It was ahead of need: who needs it does it.
      }
      lock.lock();
    } else if (!queue_.empty()) {
      prepare_some(lock);
    }
  }
}

/// Maps some pages of the first slab in the queue, or registers it when all are mapped. Read faults: where pages are
/// there already they map 16 at a time, for writes too, in a third of the time.
void slab_map::prepare_some(std::unique_lock<std::mutex>& lock) {
  const auto [slab, offset] = queue_.front();
  const std::uint64_t bytes = std::min(populate_step, slab->memory.size() - offset);
  const auto user = bytes == 0 ? device_ : nullptr;
  preparing_ = slab;
  lock.unlock();
  const bool went = bytes == 0 || slab->memory.file().populate(offset, bytes, memory::access::read_only);
  const bool registers = user && user->register_host({slab->memory.data(), slab->memory.size()});
  std::this_thread::yield();
  lock.lock();
  preparing_ = nullptr;
  changed_.notify_all();
  if (registers) registered_.push_back(slab);
  if (user && !registers) ++refused_;
  if (queue_.empty() || queue_.front().slab != slab) return;  // it is to be dropped
  if (bytes == 0) return queue_.pop_front();
  queue_.front().offset = went ? offset + bytes : slab->memory.size();
  if (queue_.front().offset < slab->memory.size()) return;
  if (went) slab->all_mapped.store(true, std::memory_order_relaxed);
  if (!device_) queue_.pop_front();
}

}  // namespace cenote::client
