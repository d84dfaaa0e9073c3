// The slabs that a session has mapped, found by index without a lock.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "device/device.hpp"
#include "memory/block_ref.hpp"
#include "memory/segment.hpp"
#include "memory/slab_mapping.hpp"

namespace cenote::client {

/// One mapped slab; immutable but for what is known of its pages.
struct mapped_slab {
  memory::slab_mapping memory;
  std::uint32_t index = 0;
  std::uint32_t count = 0;   ///< blocks
  std::uint64_t stride = 0;  ///< bytes from block to block
  std::uint32_t group = 0;

  /// Its pages, by the thread that does so in the background. On a device: from the beginning.
  mutable std::atomic<bool> all_mapped{false};
  /// Bytes from the beginning on that are registered with the session's device.
  mutable std::atomic<std::uint64_t> registered{0};
  /// A call came to it: it is prepared before slabs that no call has used.
  mutable std::atomic<bool> urgent{false};

  /// On a device an address and no more.
  [[nodiscard]] std::byte* block(std::uint32_t number) const noexcept { return memory.data() + stride * number; }
  [[nodiscard]] bool has_registered(std::uint32_t number) const noexcept {
    return stride * (std::uint64_t{number} + 1) <= registered.load(std::memory_order_acquire);
  }
  void hurry() const noexcept {
    if (!urgent.load(std::memory_order_relaxed)) urgent.store(true, std::memory_order_relaxed);
  }
  /// Before a block is written: the fault of a read maps 16 pages that are there, that of a write one.
  void map_block(std::uint32_t number) const noexcept {
    constexpr std::uint64_t at_once = std::uint64_t{64} << 10;
    if (all_mapped.load(std::memory_order_relaxed)) return;
    const volatile std::byte* const first = block(number);
    for (std::uint64_t at = 0; at < stride; at += at_once) static_cast<void>(first[at]);
    static_cast<void>(first[stride - 1]);
  }
};

/// Where a slab's blocks are, as the instance's directory says.
struct slab_shape {
  std::uint32_t index = 0;
  std::uint32_t count = 0;
  std::uint64_t stride = 0;
  std::uint32_t group = 0;
};

/// find() may be called by any thread at any time; what it returns may be used while the caller holds a verified pin,
/// a grant or a reservation in that slab (then the node cannot retire it), or for null checks. The other members lock.
class slab_map {
 public:
  slab_map();
  ~slab_map();
  slab_map(const slab_map&) = delete;
  slab_map& operator=(const slab_map&) = delete;

  /// The slab, or null when it is not mapped here.
  [[nodiscard]] const mapped_slab* find(std::uint32_t index) const noexcept {
    if (index >= memory::block_ref::max_slabs) return nullptr;
    const chunk* part = chunks_[index / chunk_slabs].load(std::memory_order_acquire);
    return part == nullptr ? nullptr : (*part)[index % chunk_slabs].load(std::memory_order_acquire);
  }

  /// The background thread calls it again and again, the first time soon: it drops slabs that are retired, and adds
  /// new ones. Returns how long it may be until the next call; an exception counts as a second.
  using slab_look = std::function<std::chrono::nanoseconds()>;

  /// Slabs are memory of that device, which maps them. Pages that a client has mapped stay in the device's memory: the
  /// look has to drop retired slabs. Before any slab is there, and before other threads.
  void lie_on(std::shared_ptr<device> home, slab_look regular);

  /// Maps a slab of `bytes` (the whole segment) read-write; its pages are mapped in the background. A slab that is
  /// mapped already stays as it is.
  result<void> add(const slab_shape& shape, unique_fd fd, std::uint64_t bytes);

  /// For tests and owners in one process: uses an existing mapping, populates nothing.
  void adopt(const slab_shape& shape, memory::segment memory);

  /// Unmaps every slab for which `gone(index)` holds.
  void drop_if(const std::function<bool(std::uint32_t)>& gone);

  /// Registers all slabs with the device, later ones too, in the background and in pieces of whole blocks; before a
  /// slab is unmapped this is undone. Slabs to which a call came are first, then those of the highest numbers. What
  /// cannot be registered is copied through the device's stage; pieces of it that are registered stay so, for copies
  /// may be under way there. Pages of a registered slab stay in memory: the look has to drop retired slabs. The first
  /// device stays.
  void register_with(std::shared_ptr<device> user, slab_look regular);
  /// The next look is no later than that. Takes no lock if it is not anyway.
  void look_within(std::chrono::nanoseconds pause);

  /// So much of a slab is registered at a time: whole blocks and whole pages.
  [[nodiscard]] static std::uint64_t piece_bytes(std::uint64_t stride) noexcept;

  struct registration_counts {
    std::size_t slabs = 0;            ///< that are registered whole
    std::size_t refused = 0;          ///< slabs of which a piece was
    std::uint64_t bytes = 0;          ///< that were registered so far
    std::chrono::nanoseconds time{};  ///< in the device's calls for that
  };
  [[nodiscard]] registration_counts registered() const;
  /// The block's memory is.
  [[nodiscard]] bool is_registered(memory::block_ref block) const noexcept {
    const mapped_slab* slab = find(block.slab());
    return slab != nullptr && slab->has_registered(block.block());
  }

  /// The highest number of a slab that was mapped so far.
  [[nodiscard]] std::uint32_t latest() const noexcept { return latest_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t size() const;

  /// Has the background thread do something short, before it maps more pages. Of several that wait the last is done.
  void do_later(std::function<void()> errand);

 private:
  static constexpr std::size_t chunk_slabs = 1024;
  using chunk = std::array<std::atomic<const mapped_slab*>, chunk_slabs>;

  /// A slab whose pages from `offset` on are to be mapped, and which is to be registered as far as they are.
  struct preparation {
    const mapped_slab* slab = nullptr;
    std::uint64_t offset = 0;
    bool refused = false;
  };

  result<void> add_of_device(const slab_shape& shape, unique_fd fd, std::uint64_t bytes);
  void place(std::unique_ptr<mapped_slab> slab, std::uint64_t offset);
  static void unregister(const mapped_slab& slab, device* user) noexcept;
  void run_in_background();
  void await_work(std::unique_lock<std::mutex>& lock);
  void prepare_loop();
  void take_look(std::unique_lock<std::mutex>& lock);
  void run_errand(std::unique_lock<std::mutex>& lock);
  void prepare_some(std::unique_lock<std::mutex>& lock);

  std::vector<std::atomic<chunk*>> chunks_;
  std::atomic<std::uint32_t> latest_{0};
  std::atomic<std::chrono::steady_clock::time_point> next_look_{std::chrono::steady_clock::time_point::min()};
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<mapped_slab>> slabs_;

  std::condition_variable changed_;
  std::shared_ptr<device> home_;  ///< on which slabs lie; null: they are host memory
  std::vector<preparation> queue_;
  const mapped_slab* preparing_ = nullptr;  ///< by the thread, at this moment
  std::shared_ptr<device> device_;
  slab_look look_;
  registration_counts registered_;  ///< but for `slabs`
  std::function<void()> errand_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace cenote::client
