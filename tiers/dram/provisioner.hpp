// The DRAM tier's own thread: makes, fills and gives up slab memory, which takes milliseconds.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "tiers/dram/store.hpp"

namespace cenote::dram {

/// What became of a request.
struct slab_outcome {
  slab_request::kind what = slab_request::kind::create;
  slab_description slab;
  memory::segment memory;  ///< create, when it went well
  result<void> status;
};

struct provisioner_options {
  bool populate = true;
  bool huge_pages = true;
  int numa_node = -1;
};

/// One thread; create and drop are carried out in order. Small slabs are touched before they are handed over, large
/// ones afterwards, when nothing else waits: a fresh page costs microseconds, and no put should pay for it.
class provisioner {
 public:
  /// Both called on the provisioner's thread. `keep`: makes the memory survive this process before anyone uses it.
  using keeper_put = std::function<result<void>(const slab_description&, const memory::segment&)>;
  using keeper_drop = std::function<result<void>(const slab_description&)>;
  using on_outcome = std::function<void(slab_outcome)>;

  provisioner(provisioner_options options, keeper_put keep, keeper_drop drop, on_outcome done);
  provisioner(const provisioner&) = delete;
  provisioner& operator=(const provisioner&) = delete;
  /// Finishes the request under way; the rest is dropped.
  ~provisioner();

  /// Thread-safe.
  void submit(std::vector<slab_request> requests);
  /// Any other short blocking work that belongs behind the requests so far. Thread-safe.
  void submit_task(std::function<void()> task);

 private:
  struct populating {
    memory::segment memory;  ///< a mapping of our own: the store may drop its at any time
    std::uint64_t offset = 0;
  };

  void run();
  void carry_out(slab_request request);
  void create(const slab_description& slab);
  void populate_some();

  provisioner_options options_;
  keeper_put keep_;
  keeper_drop drop_;
  on_outcome done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::deque<populating> unfilled_;  ///< the thread's own
  std::thread thread_;
};

}  // namespace cenote::dram
