// The thread that accepts connections, and knows how many there are.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote::rpc {

/// gRPC's own listening knows no bound of connections, and ends for good when the process is out of descriptors. So
/// connections are accepted here and handed over; a second descriptor of each shows when gRPC has shut it down.
class connection_gate {
 public:
  struct receivers {
    std::function<void(unique_fd)> connection;  ///< takes a connection
    std::function<void()> tick;                 ///< called about twice a second
  };

  /// Errors: system.
  [[nodiscard]] static result<connection_gate> open(std::vector<unique_fd> listeners, std::size_t limit);

  /// Begins; to be called once, at the object's last place.
  void start(receivers takers);
  /// Ends the thread and closes the listening sockets.
  void stop() noexcept;

  connection_gate(connection_gate&&) = default;
  connection_gate& operator=(connection_gate&&) = delete;
  connection_gate(const connection_gate&) = delete;
  connection_gate& operator=(const connection_gate&) = delete;
  ~connection_gate() { stop(); }

 private:
  connection_gate(unique_fd poll, unique_fd wake, std::vector<unique_fd> listeners, std::size_t limit)
      : poll_(std::move(poll)), wake_(std::move(wake)), listeners_(std::move(listeners)), limit_(limit) {}

  [[nodiscard]] result<void> watch(int descriptor, unsigned events) const;
  void run();
  /// False: the thread is to end.
  [[nodiscard]] bool react_to(int descriptor);
  void accept_all(int listener);
  void hand_over(unique_fd connection);

  unique_fd poll_, wake_;
  std::vector<unique_fd> listeners_;
  std::size_t limit_;
  std::unordered_map<int, unique_fd> connections_;  ///< their second descriptors
  receivers takers_;
  std::thread thread_;
};

}  // namespace cenote::rpc
