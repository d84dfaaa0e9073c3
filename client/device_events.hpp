// What a session does once a device is done: a thread that ends pins and commits blocks after their event.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>

#include "client/channel.hpp"
#include "core/error.hpp"
#include "device/device.hpp"

namespace cenote::client {

/// A stream and the device that it belongs to.
struct device_stream {
  std::shared_ptr<device> owner;
  stream_ref stream;
};

/// Thread-safe. Nothing is done twice, and nothing before its event has ended.
class device_events {
 public:
  using task = std::function<void(const result<void>&)>;

  device_events();
  device_events(const device_events&) = delete;
  device_events& operator=(const device_events&) = delete;
  /// No task is running or comes afterwards; those of pending events are dropped.
  ~device_events();

  enum class runs_on : bool {
    device_thread,  ///< at once: for what is short
    own_thread,     ///< one after the other: for what waits for the node
  };

  /// Does `work` when all that the stream was given before has ended: with success, or with why nobody knows what the
  /// device has done. Errors: closed (the device is away), system; then never.
  result<void> after(const device_stream& where, runs_on thread, task work);
  /// Does `work` when that event has ended, at once if it has. Errors: system; then never.
  result<void> when(device& owner, const event_ref& event, runs_on thread, task work);
  /// Waits until the device has ended all that was waited for. Errors: deadline_exceeded.
  result<void> wait_for_device(time_point until);
  /// Waits until no task is left. Errors: deadline_exceeded.
  result<void> drain(time_point until);
  /// Events that have not ended.
  [[nodiscard]] std::size_t under_way() const;
  /// Tasks that are not done, those of such events among them.
  [[nodiscard]] std::size_t pending() const;

 private:
  struct entry;
  struct state;
  static void run(const std::shared_ptr<state>& shared);
  static void do_work(const entry& each) noexcept;

  std::shared_ptr<state> shared_;  // callbacks of a device may come after this object is gone
  std::thread thread_;
};

}  // namespace cenote::client
