#include "device/cuda/watcher.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace cenote::cuda {

namespace {

constexpr std::chrono::microseconds between_looks{20};

}  // namespace

watcher::~watcher() {
  {
    const std::lock_guard guard(lock_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void watcher::add(std::shared_ptr<cuda_event> event, callback call) {
  {
    const std::lock_guard guard(lock_);
    added_.push_back({std::move(event), std::move(call)});
  }
  changed_.notify_one();
}

void watcher::call_the_ended(std::vector<item>& items) {
  std::vector<item> left;
  for (item& each : items) {
    switch (each.event->look()) {
      case event_state::pending: left.push_back(std::move(each)); break;
      case event_state::done: each.call({}); break;
      case event_state::failed: each.call(fail(error_code::system, "the GPU failed; see the device's state")); break;
    }
  }
  items = std::move(left);
}

void watcher::run() {
  std::vector<item> items;
  for (bool stopping = false; !stopping;) {
    {
      std::unique_lock guard(lock_);
      if (items.empty()) {
        changed_.wait(guard, [&] { return stopping_ || !added_.empty(); });
      } else {
        changed_.wait_for(guard, between_looks, [&] { return stopping_; });
      }
      stopping = stopping_;
      std::ranges::move(added_, std::back_inserter(items));
      added_.clear();
    }
    call_the_ended(items);
  }
  for (item& each : items) each.call(fail(error_code::closed, "the device was closed"));
}

}  // namespace cenote::cuda
