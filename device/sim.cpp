#include "device/sim.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/one_way_queue.hpp"
#include "device/sim_event.hpp"
#include "device/transform.hpp"

namespace cenote {

namespace {

constexpr std::uint64_t page_bytes = 4096;

using outcome = sim_event::outcome;

result<void> result_of(outcome how) {
  switch (how) {
    case outcome::done: return {};
    case outcome::failed: return fail(error_code::system, "the simulated device failed");
    default: return fail(error_code::closed, "the simulated device was closed");
  }
}

result<device_memory> map_file(unique_fd fd, std::uint64_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return fail_errno("mmap", "memory of the simulated device");
  ::madvise(at, bytes, MADV_DONTFORK);  // a child has none of a GPU's memory either
  device_memory made;
  made.mapping = {static_cast<std::byte*>(at), [bytes](std::byte* first) { ::munmap(first, bytes); }};
  made.bytes = bytes;
  made.descriptor = std::move(fd);
  return made;
}

/// How much memory there is, and how much of it is in use.
class memory_budget {
 public:
  void limit(std::uint64_t bytes) {
    const std::lock_guard guard(lock_);
    limit_ = bytes;
  }
  result<void> take(std::uint64_t bytes) {
    const std::lock_guard guard(lock_);
    const std::uint64_t left = limit_ > used_ ? limit_ - used_ : 0;
    if (bytes > left) {
      return fail(error_code::no_space, "the simulated device has " + std::to_string(limit_) + " bytes of memory, " +
                                            std::to_string(left) + " of them free, not " + std::to_string(bytes));
    }
    used_ += bytes;
    return {};
  }
  void give_back(std::uint64_t bytes) {
    const std::lock_guard guard(lock_);
    used_ -= bytes;
  }

 private:
  std::mutex lock_;
  std::uint64_t limit_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t used_ = 0;
};

/// One thread and its queue. Owned by the device; what users hold is a handle.
class lane {
 public:
  lane() : thread_([this] { run(); }) {}
  lane(const lane&) = delete;
  lane& operator=(const lane&) = delete;
  ~lane() { stop(); }

  void push(one_way_queue::task work) { queue_.push(std::move(work)); }
  /// Waits until all that was pushed before has run. One thread.
  void stop() {
    if (!thread_.joinable()) return;
    queue_.push(nullptr);
    thread_.join();
  }

  bool cut = false;  ///< its thread's own: what it waited for will never be, so nothing after it may run

 private:
  void run() {
    while (auto work = queue_.pop()) work();
  }

  one_way_queue queue_;
  std::thread thread_;
};

class sim_stream final : public stream {
 public:
  explicit sim_stream(lane& given) noexcept : lane_(given) {}
  [[nodiscard]] void* native() const noexcept override { return &lane_; }
  [[nodiscard]] lane& own_lane() const noexcept { return lane_; }

 private:
  lane& lane_;
};

/// What a gather or scatter needs until it has run.
struct paged_work {
  paged_work(const paged_layout& layout, const move_list& moves, layer_range layers)
      : pieces(layout.pieces(layers).begin(), layout.pieces(layers).end()),
        offset(layout.offsets(layers).front()),
        pages(moves.pages.begin(), moves.pages.end()),
        blocks(moves.blocks.begin(), moves.blocks.end()) {}
  void run(bool to_blocks, std::size_t count) const {
    const auto some = std::span(pages).first(count);
    if (to_blocks) return transform::gather(pieces, some, std::span(blocks).first(count), 1, offset);
    const std::vector<const std::byte*> from(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(count));
    transform::scatter(pieces, some, from, 1, offset);
  }

  std::vector<strided_piece> pieces;
  std::uint64_t offset;
  std::vector<std::uint64_t> pages;
  std::vector<std::byte*> blocks;
};

}  // namespace

class sim_device::core {
 public:
  core() = default;
  core(const core&) = delete;
  core& operator=(const core&) = delete;
  ~core() {
    {
      const std::lock_guard guard(lock_);
      closing_ = true;
      for (const auto& event : lost_) event->settle(outcome::gone);
    }
    for (const auto& each : lanes_) each->stop();
    callbacks_.stop();
  }

  stream_ref make_stream() {
    const std::lock_guard guard(lock_);
    return std::make_shared<sim_stream>(*lanes_.emplace_back(std::make_unique<lane>()));
  }

  stream_ref outside(const void* native) {
    const std::lock_guard guard(lock_);
    const auto found =
        std::ranges::find(lanes_, native, [](const auto& each) { return static_cast<void*>(each.get()); });
    return found == lanes_.end() ? nullptr : std::make_shared<sim_stream>(**found);
  }

  /// work(true): all of it; work(false): half of it, as when a device fails meanwhile.
  template <class Work>
  result<void> push(const stream_ref& on, Work work) {
    if (away()) return refuse();
    if (until_hang.fetch_sub(1, std::memory_order_relaxed) == 1) hang();
    lane& to = static_cast<const sim_stream&>(*on).own_lane();
    to.push([this, &to, work = std::move(work)] {
      std::this_thread::sleep_for(std::chrono::microseconds(delay.load(std::memory_order_relaxed)));
      if (to.cut || away()) return;
      const bool fails = until_failure.fetch_sub(1, std::memory_order_relaxed) == 1;
      work(!fails);
      if (fails) away_.store(true, std::memory_order_relaxed);
    });
    return {};
  }

  result<event_ref> record(const stream_ref& on) {
    if (away()) return refuse();
    auto made = std::make_shared<sim_event>();
    lane& to = static_cast<const sim_stream&>(*on).own_lane();
    to.push([this, &to, made] {
      if (until_loss.fetch_sub(1, std::memory_order_relaxed) == 1) return lose(made);
      made->settle(to.cut ? outcome::gone : away() ? outcome::failed : outcome::done);
    });
    return made;
  }

  result<void> wait(const stream_ref& on, const event_ref& event) {
    if (away()) return refuse();
    lane& to = static_cast<const sim_stream&>(*on).own_lane();
    to.push([&to, event] {
      auto settled = std::make_shared<one_way_signal>();
      auto how = std::make_shared<outcome>();
      static_cast<sim_event&>(*event).add([settled, how](outcome now) {
        *how = now;
        settled->post();
      });
      settled->wait();
      if (*how == outcome::gone) to.cut = true;
    });
    return {};
  }

  void when(const event_ref& event, std::function<void(result<void>)> call) {
    if (in_child()) return call(refuse());
    static_cast<sim_event&>(*event).add(
        [this, call = std::move(call)](outcome how) { callbacks_.push([call, how] { call(result_of(how)); }); });
  }

  result<void> add_registered(std::span<std::byte> memory) {
    const std::lock_guard guard(lock_);
    const auto after = registered_.lower_bound(memory.data() + memory.size());
    if (after != registered_.begin() && std::prev(after)->first + std::prev(after)->second > memory.data()) {
      return fail(error_code::invalid_argument, "host memory is registered already, or a part of it");
    }
    registered_.emplace(memory.data(), memory.size());
    return {};
  }

  void remove_registered(std::span<std::byte> memory) {
    const std::lock_guard guard(lock_);
    const auto found = registered_.find(memory.data());
    if (found != registered_.end() && found->second == memory.size()) registered_.erase(found);
  }

  std::uint64_t registered_bytes() {
    const std::lock_guard guard(lock_);
    std::uint64_t sum = 0;
    for (const auto& [first, bytes] : registered_) sum += bytes;
    return sum;
  }

  [[nodiscard]] bool in_child() const noexcept { return ::getpid() != process_; }
  [[nodiscard]] bool away() const noexcept { return away_.load(std::memory_order_relaxed) || in_child(); }
  [[nodiscard]] std::unexpected<error> refuse() const {
    if (in_child()) {
      return fail(error_code::forked, "the device was opened by the parent process; open it again in the child");
    }
    return fail(error_code::closed, "the simulated device is away after an error");
  }

  // Relaxed throughout: a switch must not order the device's work before anything of the host's.
  std::atomic<bool> out_of_memory{false};
  std::atomic<bool> refuse_registration{false};
  std::atomic<std::int64_t> until_failure{0};  // pieces of work; at most 0: none fails
  std::atomic<std::int64_t> until_loss{0};     // events; at most 0: none is lost
  std::atomic<std::int64_t> until_hang{0};     // pieces of work; at most 0: nobody
  std::atomic<std::int64_t> delay{0};          // microseconds
  const std::shared_ptr<memory_budget> budget = std::make_shared<memory_budget>();  // memory may outlive the device

 private:
  [[noreturn]] static void hang() {
    for (;;) ::pause();
  }

  void lose(const std::shared_ptr<sim_event>& event) {
    const std::lock_guard guard(lock_);
    if (closing_) return event->settle(outcome::gone);
    lost_.push_back(event);
  }

  const pid_t process_ = ::getpid();
  std::atomic<bool> away_{false};
  std::mutex lock_;  // never taken by a lane but for an event that is lost
  bool closing_ = false;
  std::map<std::byte*, std::size_t> registered_;
  std::vector<std::shared_ptr<sim_event>> lost_;
  lane callbacks_;
  std::vector<std::unique_ptr<lane>> lanes_;
};

sim_device::sim_device() : core_(std::make_unique<core>()) {}
sim_device::~sim_device() {
  if (core_->in_child()) static_cast<void>(core_.release());  // its threads stayed with the parent
}

result<device_memory> sim_device::make(std::uint64_t bytes) {
  if (core_->away()) return core_->refuse();
  if (bytes == 0) return fail(error_code::invalid_argument, "0 bytes of device memory");
  if (core_->out_of_memory.load(std::memory_order_relaxed)) {
    return fail(error_code::no_space, "the simulated device is out of memory");
  }
  const std::uint64_t whole = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  unique_fd fd(::memfd_create("cenote-sim-device", MFD_CLOEXEC));
  if (!fd) return fail_errno("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(whole)) != 0) return fail_errno("ftruncate");
  if (auto taken = core_->budget->take(whole); !taken) return std::unexpected(taken.error());
  auto made = map_file(std::move(fd), whole);
  if (!made) {
    core_->budget->give_back(whole);
    return made;
  }
  made->mapping = {made->mapping.get(), [whole, budget = core_->budget, kept = made->mapping](std::byte*) mutable {
                     kept.reset();
                     budget->give_back(whole);
                   }};
  return made;
}

result<device_memory> sim_device::map(unique_fd descriptor, std::uint64_t bytes) {
  if (core_->away()) return core_->refuse();
  struct stat info {};
  if (::fstat(descriptor.get(), &info) != 0) return fail_errno("fstat", "memory of the simulated device");
  if (bytes == 0 || static_cast<std::uint64_t>(info.st_size) < bytes) {
    return fail(error_code::invalid_argument,
                "the descriptor has " + std::to_string(info.st_size) + " bytes, not " + std::to_string(bytes));
  }
  auto made = map_file(std::move(descriptor), static_cast<std::uint64_t>(info.st_size));
  if (made) made->descriptor.reset();
  return made;
}

result<void> sim_device::register_host(std::span<std::byte> memory) {
  if (core_->away()) return core_->refuse();
  if (core_->refuse_registration.load(std::memory_order_relaxed)) {
    return fail(error_code::unsupported, "the simulated device was told to register nothing");
  }
  return core_->add_registered(memory);
}

void sim_device::unregister_host(std::span<std::byte> memory) noexcept {
  if (core_->in_child()) return;
  core_->remove_registered(memory);
}

result<stream_ref> sim_device::make_stream() {
  if (core_->away()) return core_->refuse();
  return core_->make_stream();
}

result<stream_ref> sim_device::outside(void* native) {
  if (auto found = core_->outside(native)) return found;
  return fail(error_code::invalid_argument, "no stream of this simulated device");
}

result<void> sim_device::copy(const stream_ref& on, std::span<const copy_run> runs) {
  return core_->push(on, [kept = std::vector(runs.begin(), runs.end())](bool whole) {
    for (const copy_run& run : kept) std::memcpy(run.to, run.from, whole ? run.bytes : run.bytes / 2);
  });
}

result<void> sim_device::gather(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                layer_range layers) {
  if (auto good = layout.check(moves, layers); !good) return good;
  return core_->push(on, [kept = paged_work(layout, moves, layers)](bool whole) {
    kept.run(true, whole ? kept.pages.size() : kept.pages.size() / 2);
  });
}

result<void> sim_device::scatter(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                 layer_range layers) {
  if (auto good = layout.check(moves, layers); !good) return good;
  return core_->push(on, [kept = paged_work(layout, moves, layers)](bool whole) {
    kept.run(false, whole ? kept.pages.size() : kept.pages.size() / 2);
  });
}

result<event_ref> sim_device::record(const stream_ref& on) {
  return core_->record(on);
}

result<void> sim_device::wait(const stream_ref& on, const event_ref& event) {
  return core_->wait(on, event);
}

event_state sim_device::look(const event_ref& event) {
  switch (static_cast<const sim_event&>(*event).now()) {
    case outcome::pending: return event_state::pending;
    case outcome::done: return event_state::done;
    default: return event_state::failed;
  }
}

void sim_device::when(const event_ref& event, std::function<void(result<void>)> call) {
  core_->when(event, std::move(call));
}

standing sim_device::state() const noexcept {
  return core_->away() ? standing::away : standing::ready;
}

void sim_device::set_out_of_memory(bool on) noexcept {
  core_->out_of_memory.store(on, std::memory_order_relaxed);
}
void sim_device::set_registration_refused(bool on) noexcept {
  core_->refuse_registration.store(on, std::memory_order_relaxed);
}
void sim_device::set_delay(std::chrono::microseconds each) noexcept {
  core_->delay.store(each.count(), std::memory_order_relaxed);
}
void sim_device::fail_work(std::uint32_t number) noexcept {
  core_->until_failure.store(number, std::memory_order_relaxed);
}
void sim_device::lose_event(std::uint32_t number) noexcept {
  core_->until_loss.store(number, std::memory_order_relaxed);
}
void sim_device::hang_at(std::uint32_t number) noexcept {
  core_->until_hang.store(number, std::memory_order_relaxed);
}
void sim_device::limit_memory(std::uint64_t bytes) noexcept {
  core_->budget->limit(bytes);
}
std::uint64_t sim_device::registered_bytes() const {
  return core_->registered_bytes();
}

}  // namespace cenote
