#include "client/slab_map.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <system_error>
#include <tuple>
#include <utility>

namespace cenote::client {

namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t populate_step = std::uint64_t{256} << 10;  // tens of microseconds: then whoever waits runs
constexpr std::uint64_t largest_piece = std::uint64_t{8} << 20;    // registered in a millisecond: launches wait so long

// A driver's lock is not fair: without a moment between two pieces a launch waits for many of them.
constexpr std::chrono::microseconds pause_of_driver{100};

constexpr std::chrono::seconds look_after_failure{1};

std::unique_ptr<mapped_slab> described(const slab_shape& shape, memory::slab_mapping memory) {
  auto slab = std::make_unique<mapped_slab>();
  slab->memory = std::move(memory);
  slab->index = shape.index;
  slab->count = shape.count;
  slab->stride = shape.stride;
  slab->group = shape.group;
  return slab;
}

/// The pages of a slab's blocks.
std::uint64_t bytes_to_register(const mapped_slab& slab) noexcept {
  const std::uint64_t pages = (slab.count * slab.stride + memory::page_bytes - 1) / memory::page_bytes;
  return std::min(pages * memory::page_bytes, slab.memory.size());
}

bool is_registered(const mapped_slab& slab) noexcept {
  return slab.registered.load(std::memory_order_relaxed) == bytes_to_register(slab);
}

/// Of the next one to register.
std::uint64_t end_of_piece(const mapped_slab& slab) noexcept {
  return std::min(slab.registered.load(std::memory_order_relaxed) + slab_map::piece_bytes(slab.stride),
                  bytes_to_register(slab));
}

/// Maps pages from `offset` on, up to `end` at most; how far they are mapped now. Read faults: where pages are there
/// already they map 16 at a time, for writes too, in a third of the time.
std::uint64_t map_some(const mapped_slab& slab, std::uint64_t offset, std::uint64_t end) noexcept {
  const std::uint64_t bytes = std::min(populate_step, end - offset);
  const std::uint64_t whole = slab.memory.size();
  if (!slab.memory.file().populate(offset, bytes, memory::access::read_only)) return whole;  // they come with their use
  if (offset + bytes == whole) slab.all_mapped.store(true, std::memory_order_relaxed);
  return offset + bytes;
}

slab_map::registration_counts register_piece(const mapped_slab& slab, std::uint64_t end, device& user) {
  const std::uint64_t begin = slab.registered.load(std::memory_order_relaxed);
  const auto started = steady_clock::now();
  const bool taken = user.register_host({slab.memory.data() + begin, end - begin}).has_value();
  slab_map::registration_counts counts{.time = steady_clock::now() - started};
  if (!taken) {
    counts.refused = 1;
    return counts;
  }
  counts.bytes = end - begin;
  return counts;
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
  for (const auto& slab : slabs_) unregister(*slab, device_.get());
  for (auto& part : chunks_) delete part.load(std::memory_order_relaxed);
}

std::uint64_t slab_map::piece_bytes(std::uint64_t stride) noexcept {
  const std::uint64_t unit = std::lcm(std::max<std::uint64_t>(stride, 1), memory::page_bytes);
  return std::max<std::uint64_t>(largest_piece / unit, 1) * unit;
}

void slab_map::lie_on(std::shared_ptr<device> home, slab_look regular) {
  const std::lock_guard lock(mutex_);
  home_ = std::move(home);
  look_ = std::move(regular);
  run_in_background();
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
  latest_.store(std::max(latest(), placed->index), std::memory_order_relaxed);
  if (offset == placed->memory.size() && !device_ && !home_) return;
  if (!home_) queue_.push_back({placed, offset});
  run_in_background();
}

/// The device may keep whoever unregisters for milliseconds: without the lock, for which requests wait.
void slab_map::drop_if(const std::function<bool(std::uint32_t)>& gone) {
  std::vector<std::unique_ptr<mapped_slab>> dropped;
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
    dropped.push_back(std::move(slabs_[i]));
    slabs_.erase(slabs_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  const auto user = device_;
  lock.unlock();
  for (const auto& slab : dropped) unregister(*slab, user.get());
}

void slab_map::register_with(std::shared_ptr<device> user, slab_look regular) {
  const std::lock_guard lock(mutex_);
  if (device_) return;
  device_ = std::move(user);
  look_ = std::move(regular);
  for (const auto& slab : slabs_) {
    const bool waits = std::ranges::find(queue_, slab.get(), &preparation::slab) != queue_.end();
    if (!waits) queue_.push_back({slab.get(), slab->memory.size()});
  }
  run_in_background();
}

void slab_map::look_within(std::chrono::nanoseconds pause) {
  const auto due = steady_clock::now() + pause;
  if (next_look_.load(std::memory_order_relaxed) <= due) return;
  const std::lock_guard lock(mutex_);
  next_look_.store(std::min(next_look_.load(std::memory_order_relaxed), due), std::memory_order_relaxed);
  run_in_background();
}

slab_map::registration_counts slab_map::registered() const {
  const std::lock_guard lock(mutex_);
  registration_counts counts = registered_;
  const auto whole = std::ranges::count_if(slabs_, [](const auto& slab) { return client::is_registered(*slab); });
  counts.slabs = static_cast<std::size_t>(whole);
  return counts;
}

/// In the pieces in which it was registered.
void slab_map::unregister(const mapped_slab& slab, device* user) noexcept {
  const std::uint64_t whole = slab.registered.load(std::memory_order_acquire);
  const std::uint64_t piece = piece_bytes(slab.stride);
  for (std::uint64_t at = 0; at < whole; at += piece) {
    user->unregister_host({slab.memory.data() + at, std::min(piece, whole - at)});
  }
}

std::size_t slab_map::size() const {
  const std::lock_guard lock(mutex_);
  return slabs_.size();
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

void slab_map::await_work(std::unique_lock<std::mutex>& lock) {
  const auto next = [&] { return next_look_.load(std::memory_order_relaxed); };
  while (queue_.empty() && !errand_ && !stop_ && !(look_ && steady_clock::now() >= next())) {
    if (look_) {
      changed_.wait_until(lock, next());
    } else {
      changed_.wait(lock);
    }
  }
}

/// A look or an errand has one step of preparations behind it, so that neither waits for all of the other.
void slab_map::prepare_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    await_work(lock);
    if (stop_) return;
    if (look_ && steady_clock::now() >= next_look_.load(std::memory_order_relaxed)) {
      take_look(lock);
    } else if (errand_) {
      run_errand(lock);
    }
    if (!queue_.empty()) prepare_some(lock);
  }
}

void slab_map::take_look(std::unique_lock<std::mutex>& lock) {
  next_look_.store(steady_clock::time_point::max(), std::memory_order_relaxed);
  lock.unlock();
  std::chrono::nanoseconds pause = look_after_failure;
  try {
    pause = look_();  // set once
  } catch (const std::exception&) {
    // It was ahead of need: what a call needs it maps.
  }
  lock.lock();
  const auto due = std::min(next_look_.load(std::memory_order_relaxed), steady_clock::now() + pause);
  next_look_.store(due, std::memory_order_relaxed);
}

void slab_map::run_errand(std::unique_lock<std::mutex>& lock) {
  const auto errand = std::exchange(errand_, nullptr);
  lock.unlock();
  try {
    errand();
  } catch (const std::exception&) {
    // As above.
  }
  lock.lock();
}

/// Maps some pages of one slab, or registers a piece whose pages are mapped. Others get the processor where nothing is
/// to be registered, and once a piece: they may keep it for milliseconds.
void slab_map::prepare_some(std::unique_lock<std::mutex>& lock) {
  preparation next = *std::ranges::max_element(queue_, {}, [](const preparation& each) {
    return std::tuple(each.slab->urgent.load(std::memory_order_relaxed), each.slab->index);
  });
  const mapped_slab& slab = *next.slab;
  const auto user = next.refused || client::is_registered(slab) ? nullptr : device_;
  const std::uint64_t end = user ? end_of_piece(slab) : slab.memory.size();
  registration_counts gained;
  preparing_ = next.slab;
  lock.unlock();
  const bool maps = next.offset < end;
  if (maps) {
    next.offset = map_some(slab, next.offset, end);
  } else if (user) {
    gained = register_piece(slab, end, *user);
    next.refused = gained.refused != 0;
  }
  if (!user) std::this_thread::yield();
  if (!maps && user) std::this_thread::sleep_for(pause_of_driver);
  lock.lock();
  preparing_ = nullptr;
  changed_.notify_all();
  slab.registered.fetch_add(gained.bytes, std::memory_order_release);
  registered_.bytes += gained.bytes;
  registered_.refused += gained.refused;
  registered_.time += gained.time;
  const auto entry = std::ranges::find(queue_, next.slab, &preparation::slab);
  if (entry == queue_.end()) return;  // it is to be dropped
  *entry = next;
  const bool lacks_device = device_ && !next.refused && !client::is_registered(slab);
  if (next.offset == slab.memory.size() && !lacks_device) queue_.erase(entry);
}

}  // namespace cenote::client
