// Checks passwords on a thread of its own: each takes so long that no thread of a transport can wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "services/manager/service/access.hpp"

namespace cenote::manager {

using access_receiver = std::function<void(access_outcome<call_access>)>;

/// Thread-safe. A caller with many connections is checked once: the later ones find the first one's answer.
class access_desk {
 public:
  static constexpr std::size_t most_waiting = 1'024;
  static constexpr std::chrono::seconds longest_wait{10};  ///< then the client has gone, or will soon

  explicit access_desk(const access_settings& settings);
  access_desk(const access_desk&) = delete;
  access_desk& operator=(const access_desk&) = delete;
  ~access_desk() { stop(); }

  [[nodiscard]] access_control& control() noexcept { return control_; }
  /// Gives the outcome of access_control::check(), on the desk's thread; or too_many, here, if there is no room or the
  /// desk has stopped.
  void check(const call_evidence& evidence, const manager_registry& registry, rpc_role role, access_receiver receive);
  /// Does something else that takes as long on that thread. False: there is no room.
  [[nodiscard]] bool post(std::function<void()> task);
  /// Refuses what waits, and ends the thread. What was posted and waits is dropped.
  void stop() noexcept;

 private:
  struct waiting_check {
    std::string address{}, certificate_name{}, authorization{};
    manager_registry registry{};
    rpc_role role = rpc_role::admin;
    access_receiver receive{};
    std::function<void()> task{};  ///< instead
    access_control::time_point end{};
  };

  [[nodiscard]] bool add(waiting_check& check);
  void run();
  void handle(waiting_check& check);

  access_control control_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<waiting_check> waiting_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace cenote::manager
