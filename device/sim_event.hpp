// An event of the simulated device.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "device/device.hpp"

namespace cenote {

/// Settled once, by any thread; whoever sees that it is comes after what the settler did before.
class sim_event final : public event {
 public:
  enum class outcome : std::uint8_t { pending, done, failed, gone };
  using waiter = std::function<void(outcome)>;

  sim_event() = default;
  sim_event(const sim_event&) = delete;
  sim_event& operator=(const sim_event&) = delete;
  ~sim_event() override {
    if (node* left = waiting_.load(std::memory_order_acquire); left != &closed_) run(left, outcome::gone);
  }

  [[nodiscard]] outcome now() const noexcept { return now_.load(std::memory_order_acquire); }

  /// Calls the waiters on this thread. A second call changes nothing.
  void settle(outcome to) {
    outcome before = outcome::pending;
    if (!now_.compare_exchange_strong(before, to, std::memory_order_acq_rel)) return;
    run(waiting_.exchange(&closed_, std::memory_order_acq_rel), to);
  }

  /// Calls it once: from settle(), or at once when that has been. Adding tells the adder nothing of the device's work.
  void add(waiter call) {
    // Acquired, since a closed list promises that the outcome is there.
    auto made = std::make_unique<node>(std::move(call), waiting_.load(std::memory_order_acquire));
    while (made->next != &closed_) {
      if (waiting_.compare_exchange_weak(made->next, made.get(), std::memory_order_release,
                                         std::memory_order_acquire)) {
        (void)made.release();  // settle() owns it now
        return;
      }
    }
    made->call(now());
  }

 private:
  struct node {
    node(waiter given, node* after) : call(std::move(given)), next(after) {}
    waiter call;
    node* next;
  };

  static void run(node* first, outcome with) {
    for (std::unique_ptr<node> each(first); each; each.reset(each->next)) each->call(with);
  }

  std::atomic<outcome> now_{outcome::pending};
  node closed_{nullptr, nullptr};  // in place of the list, once settled
  std::atomic<node*> waiting_{nullptr};
};

}  // namespace cenote
