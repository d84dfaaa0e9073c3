// The DRAM tier's own thread: makes, fills and gives up slab memory, which takes milliseconds.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "tiers/blocks/reserve.hpp"
#include "tiers/blocks/slab_request.hpp"

namespace cenote::blocks {

/// What became of a request.
struct slab_outcome {
  slab_request::kind what = slab_request::kind::create;
  slab_description slab;
  memory::slab_mapping memory;  ///< create, when it went well
  result<void> status;
};

struct provisioner_options {
  bool populate = true;
  bool huge_pages = true;
  int numa_node = -1;
  /// Hears of an exception that ended one piece of work, on the provisioner's thread: the others go on.
  std::function<void(const std::string& what)> on_exception = {};
  /// Memory that is touched ahead of slabs. A capacity of 0: none. Its pages are those of slabs.
  reserve_options ahead = {};
  /// Makes the memory of slabs elsewhere than in the host's, where nothing is touched ahead. None: in the host's.
  std::function<result<memory::slab_mapping>(const slab_description&)> make_elsewhere = {};
};

/// Told, on the provisioner's thread, of memory that blocks will be transferred from and to: a piece at a time when
/// nothing else waits, and all of it once more before it goes.
struct transfer_hooks {
  std::function<void(std::span<std::byte>)> pin;
  std::function<void(std::span<std::byte>)> unpin;
};

/// One thread; create and drop are carried out in order. Slabs are made of the reserve's memory. Where it has none,
/// small slabs are touched before they are handed over, large ones afterwards, when nothing else waits: a fresh page
/// costs microseconds, and no put should pay for it.
class provisioner {
 public:
  /// Both called on the provisioner's thread. `keep`: makes the memory survive this process before anyone uses it.
  using keeper_put = std::function<result<void>(const slab_description&, const unique_fd& memory, std::uint64_t bytes)>;
  using keeper_drop = std::function<result<void>(const slab_description&)>;
  /// The same of an instance, whose slabs were dropped before.
  using instance_drop = std::function<result<void>(std::uint32_t)>;
  using on_outcome = std::function<void(slab_outcome)>;

  /// Without hooks nobody is told.
  provisioner(provisioner_options options, keeper_put keep, keeper_drop drop, on_outcome done,
              transfer_hooks hooks = {}, instance_drop forget = {});
  provisioner(const provisioner&) = delete;
  provisioner& operator=(const provisioner&) = delete;
  /// Finishes the request under way; the rest is dropped.
  ~provisioner();

  /// Thread-safe.
  void submit(std::vector<slab_request> requests);
  /// A slab's memory that an earlier worker made: it is only told of. Thread-safe.
  void adopt(std::span<std::byte> memory);
  /// Begins to touch memory ahead of slabs, behind all adopt(). `held`: what an earlier worker touched.
  void fill_reserve(std::vector<reserve::piece> held);
  /// Thread-safe.
  [[nodiscard]] populate_status populated() const;
  /// Any other short blocking work that belongs behind the requests so far. Thread-safe.
  void submit_task(std::function<void()> task);

 private:
  struct populating {
    memory::segment memory;         ///< a mapping of our own: the store may end before us
    std::span<std::byte> of_store;  ///< the store's
    std::uint64_t offset = 0;
  };

  void run();
  void work(const std::function<void()>& task);
  void attempt(slab_request request);
  void carry_out(slab_request request);
  void create(const slab_description& slab);
  void create_elsewhere(const slab_description& slab);
  [[nodiscard]] result<memory::segment> make_memory(const slab_description& slab, std::uint64_t& touched);
  void forget_instance(slab_request& request);
  void fill_later(const memory::segment& memory, std::uint64_t first);
  void pin_later(std::span<std::byte> memory);
  void forget(std::span<std::byte> memory);
  void populate_some();
  void count_unfilled() noexcept;
  void pin_some();

  provisioner_options options_;
  std::unique_ptr<reserve> reserve_;
  std::atomic<std::uint64_t> unfilled_bytes_{0};
  keeper_put keep_;
  keeper_drop drop_;
  on_outcome done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  transfer_hooks hooks_;
  instance_drop forget_;
  // The thread's own.
  std::deque<populating> unfilled_;
  std::deque<std::span<std::byte>> unpinned_;
  std::thread thread_;
};

}  // namespace cenote::blocks
