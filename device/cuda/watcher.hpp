// The thread that notices the ends of CUDA's events and calls whoever asked.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "device/cuda/context.hpp"

namespace cenote::cuda {

/// It asks the driver for each event every 20 µs while there are some, and sleeps otherwise: the driver's own callbacks
/// do not come any more once a context is lost. Thread-safe.
class watcher {
 public:
  using callback = std::function<void(result<void>)>;

  watcher() : thread_([this] { run(); }) {}
  watcher(const watcher&) = delete;
  watcher& operator=(const watcher&) = delete;
  /// What has not ended is told `closed`; afterwards nobody is called any more. Not from a callback.
  ~watcher();

  void add(std::shared_ptr<cuda_event> event, callback call);

 private:
  struct item {
    std::shared_ptr<cuda_event> event;
    callback call;
  };
  void run();
  static void call_the_ended(std::vector<item>& items);

  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<item> added_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cenote::cuda
